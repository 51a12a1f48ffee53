//go:build linux && !noverbs

#include "textflag.h"

GLOBL ·trampoline(SB), NOPTR|RODATA, $8
DATA ·trampoline(SB)/8, $jump<>(SB)

// jump gets a List in C's first argument and becomes the call that it describes.
TEXT jump<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ 0(DI), AX
	MOVQ 16(DI), SI
	MOVQ 24(DI), DX
	MOVQ 8(DI), DI
	JMP  AX
