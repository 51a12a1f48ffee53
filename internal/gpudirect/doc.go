// Package gpudirect lets network cards reach CUDA memory: it has the driver export it and the card register it,
// by the first way that works. It exists in builds with the tag cuda only (docs/device-memory.md).
package gpudirect
