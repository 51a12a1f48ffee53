// Package cpu holds the processor instructions that spin loops need and that Go has no word for.
package cpu
