//go:build !purego && !race

package kernel

import "golang.org/x/sys/cpu"

//go:generate go run -C _asm . -dir ..

// instructions is what the processor has of what the assembly needs.
type instructions struct{ avx2, avx512 bool }

var have = instructions{
	avx2: cpu.X86.HasAVX2 && cpu.X86.HasF16C,
	avx512: cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL &&
		cpu.X86.HasAVX2 && cpu.X86.HasF16C,
}

// callBytes bounds the memory that one assembly call touches. The garbage collector cannot stop a
// goroutine inside one, so that a call must end within about 0.1 ms.
const callBytes = 2 << 20

// streamAlign is what non-temporal stores want: they write whole cache lines.
const streamAlign = 64

// streamLeast is the length below which lining up for non-temporal stores is not worth it.
const streamLeast = 4096

// foldVector is Fold in assembly for two sources or more, or one to copy. It reports false, having
// done nothing, where there is no assembly for the type, the operation and the processor.
func foldVector(t Type, op Op, dsts, srcs [][]byte, nt bool) bool {
	n, off := len(srcs[0]), 0
	if nt {
		if off = streamHead(t, dsts); off < 0 || n-off < streamLeast {
			nt, off = false, 0
		} else if off > 0 && !foldPiece(t, op, dsts, srcs, 0, off, false) {
			return false
		}
	}
	step := callBytes / (len(dsts) + len(srcs)) &^ (streamAlign - 1)
	step = max(step, streamAlign)
	for ; off < n; off += step {
		if !foldPiece(t, op, dsts, srcs, off, min(step, n-off), nt) {
			return false
		}
	}
	return true
}

// foldPiece folds the bytes [off, off+n).
func foldPiece(t Type, op Op, dsts, srcs [][]byte, off, n int, nt bool) bool {
	if len(srcs) == 1 {
		if have.avx2 {
			copyAVX2(dsts, srcs, off, n, nt)
		}
		return have.avx2
	}
	return have.avx512 && foldAVX512(t, op, dsts, srcs, off, n, nt) ||
		have.avx2 && foldAVX2(t, op, dsts, srcs, off, n, nt)
}

// streamHead is the number of bytes in front of the first cache line that starts at the same place
// in every destination, or −1 if there is no such place between two elements.
func streamHead(t Type, dsts [][]byte) int {
	head := int(-address(dsts[0]) % streamAlign)
	for _, d := range dsts[1:] {
		if int(-address(d)%streamAlign) != head {
			return -1
		}
	}
	if head%t.Size() != 0 {
		return -1
	}
	return head
}

// scaleVector is Scale in assembly, or false, having done nothing.
func scaleVector(t Type, dst, src []byte, by float64) bool {
	dsts, srcs := [][]byte{dst}, [][]byte{src}
	for off := 0; off < len(src); off += callBytes / 2 {
		n := min(callBytes/2, len(src)-off)
		if !(have.avx512 && scaleAVX512(t, dsts, srcs, off, n, by, 0)) &&
			!(have.avx2 && scaleAVX2(t, dsts, srcs, off, n, by, 0)) {
			return false
		}
	}
	return true
}

// divideVector is Divide in assembly, or false, having done nothing.
func divideVector(t Type, b []byte, by float64) bool {
	bs := [][]byte{b}
	for off := 0; off < len(b); off += callBytes / 2 {
		n := min(callBytes/2, len(b)-off)
		if !(have.avx512 && divideAVX512(t, bs, bs, off, n, by, largest(t))) &&
			!(have.avx2 && divideAVX2(t, bs, bs, off, n, by, largest(t))) {
			return false
		}
	}
	return true
}
