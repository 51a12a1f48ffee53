//go:build linux && !noverbs

#include "textflag.h"

GLOBL ·trampoline(SB), NOPTR|RODATA, $8
DATA ·trampoline(SB)/8, $jump<>(SB)

// jump gets a List in C's first argument and becomes the call that it describes.
TEXT jump<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVD 0(R0), R9
	MOVD 16(R0), R1
	MOVD 24(R0), R2
	MOVD 8(R0), R0
	JMP  (R9)
