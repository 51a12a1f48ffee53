package tree

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// check refuses a rank, size or shape that no algorithm can serve.
func check(rank, size int, shape schedule.Shape) error {
	switch {
	case size < 1:
		return fmt.Errorf("tree: size %d: need at least one rank", size)
	case rank < 0 || rank >= size:
		return fmt.Errorf("tree: rank %d is not in [0, %d)", rank, size)
	case shape.Root < 0 || shape.Root >= size:
		return fmt.Errorf("tree: root %d is not in [0, %d)", shape.Root, size)
	case shape.Pieces < 0:
		return fmt.Errorf("tree: %d pieces: need none or more", shape.Pieces)
	case shape.Radix < 0 || shape.Radix == 1:
		return fmt.Errorf("tree: radix %d: need 0 or at least 2", shape.Radix)
	}
	return nil
}

// anySize is the Supports of algorithms that serve every size.
func anySize(size int, shape schedule.Shape) error { return check(0, size, shape) }

func pieces(shape schedule.Shape) int { return max(1, shape.Pieces) }

func radix(shape schedule.Shape) int { return max(2, shape.Radix) }

func at(b schedule.Buf, i int) schedule.Span { return schedule.At(b, i) }

func span(b schedule.Buf, first, count int) schedule.Span {
	return schedule.Span{Buf: b, First: first, Count: count}
}

func send(to int, src schedule.Span) schedule.Step {
	return schedule.Step{Op: schedule.Send, Peer: to, Src: src}
}

func recv(from int, dst schedule.Span) schedule.Step {
	return schedule.Step{Op: schedule.Recv, Peer: from, Dst: dst}
}

func copyTo(src, dst schedule.Span) schedule.Step {
	return schedule.Step{Op: schedule.Copy, Src: src, Dst: dst}
}
