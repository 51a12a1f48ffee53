package direct

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// check refuses a rank, size or root that no algorithm can serve.
func check(rank, size int, shape schedule.Shape) error {
	switch {
	case size < 1:
		return fmt.Errorf("direct: size %d: need at least one rank", size)
	case rank < 0 || rank >= size:
		return fmt.Errorf("direct: rank %d is not in [0, %d)", rank, size)
	case shape.Root < 0 || shape.Root >= size:
		return fmt.Errorf("direct: root %d is not in [0, %d)", shape.Root, size)
	case shape.Pieces < 0:
		return fmt.Errorf("direct: %d pieces: need none or more", shape.Pieces)
	case shape.Radix < 0 || shape.Radix == 1:
		return fmt.Errorf("direct: radix %d: need 0 or at least 2", shape.Radix)
	case shape.Aggregate < 0:
		return fmt.Errorf("direct: aggregate %d: need none or more", shape.Aggregate)
	case shape.Hosts != nil && len(shape.Hosts) != size:
		return fmt.Errorf("direct: %d hosts named for %d ranks", len(shape.Hosts), size)
	}
	return nil
}

func pieces(shape schedule.Shape) int { return max(1, shape.Pieces) }

func radix(shape schedule.Shape) int { return max(2, shape.Radix) }

// anySize is the Supports of algorithms that serve every size.
func anySize(size int, shape schedule.Shape) error { return check(0, size, shape) }

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

// deal sends block p of In to every other rank p: to rank+1 first, so that no rank is everybody's first target.
func deal(rank, size int) schedule.Lane {
	lane := make(schedule.Lane, 0, 4*size)
	for k := 1; k < size; k++ {
		p := (rank + k) % size
		lane = append(lane, send(p, at(schedule.In, p)))
	}
	return lane
}

// collect receives block p of Out from every other rank p, in the order in which they send to this one.
func collect(lane schedule.Lane, rank, size int) schedule.Lane {
	for k := 1; k < size; k++ {
		p := (rank - k + size) % size
		lane = append(lane, recv(p, at(schedule.Out, p)))
	}
	return lane
}

// recvReduce is dst = src ⊕ what arrives.
func recvReduce(from int, src, dst schedule.Span) schedule.Step {
	return schedule.Step{Op: schedule.RecvReduce, Peer: from, Src: src, Dst: dst}
}

// reduceRecv is dst = what arrives ⊕ src.
func reduceRecv(from int, src, dst schedule.Span) schedule.Step {
	return schedule.Step{Op: schedule.RecvReduce, Peer: from, Src: src, Dst: dst, Left: true}
}

func copyTo(src, dst schedule.Span) schedule.Step {
	return schedule.Step{Op: schedule.Copy, Src: src, Dst: dst}
}

// combine is dst = dst ⊕ src.
func combine(src, dst schedule.Span) schedule.Step {
	return schedule.Step{Op: schedule.Combine, Src: src, Dst: dst}
}

// combineLeft is dst = src ⊕ dst.
func combineLeft(src, dst schedule.Span) schedule.Step {
	return schedule.Step{Op: schedule.Combine, Src: src, Dst: dst, Left: true}
}

// final marks the step that completes a reduction.
func final(s schedule.Step) schedule.Step {
	s.Final = true
	return s
}

// fold is the run (one n-ary step, see schedule.Lane) that puts the left fold of everybody's
// contribution, in rank order, into dst: own is this rank's, the others arrive. The last step is
// final.
func fold(rank, size int, own, dst schedule.Span) schedule.Lane {
	lane := make(schedule.Lane, 0, size)
	for p := range size {
		switch {
		case p == 0 && p == rank:
			lane = append(lane, copyTo(own, dst))
		case p == 0:
			lane = append(lane, recv(p, dst))
		case p == rank:
			lane = append(lane, combine(own, dst))
		default:
			lane = append(lane, recvReduce(p, dst, dst))
		}
	}
	lane[size-1].Final = true
	return lane
}
