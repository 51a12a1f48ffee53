//go:build !purego

#include "textflag.h"

// func Pause(n int)
TEXT ·Pause(SB), NOSPLIT, $0-8
	MOVQ  n+0(FP), AX
	TESTQ AX, AX
	JLE   done

loop:
	PAUSE
	DECQ AX
	JNZ  loop

done:
	RET
