//go:build !purego && !race

package cpu

import "sync/atomic"

// StoreRelease stores v so that whoever loads it sees everything stored before; unlike p.Store, it
// does not wait until the store is visible. On amd64, where p.Store waits for the cache line, it is a
// plain store; elsewhere it is p.Store. What the caller loads afterwards may be older than
// the store, so a caller that then looks whether somebody sleeps relies on the sleeper's
// [FenceOthers].
//
//go:noescape
func StoreRelease(p *atomic.Uint64, v uint64)

// PrefetchWrite has the processor take the cache line of p, for a store to come.
//
//go:noescape
func PrefetchWrite(p *atomic.Uint64)

// PrefetchWriteAll is PrefetchWrite for every cache line of b, which begins with one.
//
//go:noescape
func PrefetchWriteAll(b []byte)

// Prefetch has the processor fetch the cache line of p, for a load to come.
//
//go:noescape
func Prefetch(p *atomic.Uint64)
