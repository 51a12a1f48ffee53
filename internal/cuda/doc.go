// Package cuda binds the few calls of NVIDIA's driver library that device tensors need, without cgo and
// without the toolkit: the library is opened at run time. It exists in builds with the tag cuda only
// (docs/device-memory.md).
//
// Signatures and numbers are those of cuda.h, CUDA driver API 11.7 to 13; names with _v2 are what the
// header's names without it stand for.
package cuda
