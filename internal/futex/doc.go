// Package futex waits for and wakes up on 32-bit words in memory that processes share (futex(2)
// without the PRIVATE flag). It exists on Linux only.
package futex
