//go:build !amd64 || purego || race

package cpu

import "sync/atomic"

// StoreRelease is p.Store where the processor has nothing cheaper.
func StoreRelease(p *atomic.Uint64, v uint64) { p.Store(v) }

// PrefetchWrite does nothing here.
func PrefetchWrite(*atomic.Uint64) {}

// PrefetchWriteAll does nothing here.
func PrefetchWriteAll([]byte) {}

// Prefetch does nothing here.
func Prefetch(*atomic.Uint64) {}
