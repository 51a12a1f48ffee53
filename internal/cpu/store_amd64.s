//go:build !purego && !race

#include "textflag.h"

// func StoreRelease(p *atomic.Uint64, v uint64)
TEXT ·StoreRelease(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), BX
	MOVQ BX, (AX)
	RET

// func PrefetchWrite(p *atomic.Uint64)
TEXT ·PrefetchWrite(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX)
	RET

// func PrefetchWriteAll(b []byte)
TEXT ·PrefetchWriteAll(SB), NOSPLIT, $0-24
	MOVQ b_base+0(FP), AX
	MOVQ b_len+8(FP), BX
	ADDQ AX, BX
	JMP  test

line:
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX)
	ADDQ $64, AX

test:
	CMPQ AX, BX
	JCS  line
	RET

// func Prefetch(p *atomic.Uint64)
TEXT ·Prefetch(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET
