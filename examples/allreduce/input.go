package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gccl/gccl/examples/allreduce/internal/npy"
	"github.com/gccl/gccl/examples/allreduce/internal/safetensors"
	"github.com/gccl/gccl/tensor"
)

// named is a tensor of a file.
type named = safetensors.Tensor

// npyName is the name of the one array of a .npy file, which has none.
const npyName = "array"

// maxFile bounds what a rank reads into memory.
const maxFile = 64 << 30

// load reads a rank's file and checks that op works on all its tensors. They are in the order of
// their names.
func (o *options) load(rank, size int) ([]named, error) {
	file := o.file(rank)
	b, err := read(file)
	if err != nil {
		return nil, err
	}
	var ts []named
	if filepath.Ext(file) == ".npy" {
		a, err := npy.Decode(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		ts = []named{{Name: npyName, Shape: a.Shape, Data: a.Data}}
	} else if ts, err = safetensors.Decode(b); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(ts) == 0 {
		return nil, fmt.Errorf("%s: there is no tensor in it", file)
	}
	for _, t := range ts {
		if _, err := tensor.NewReducer(t.Data.DType(), o.Op, size); err != nil {
			return nil, fmt.Errorf("%s: tensor %q: -op %v: %s", file, t.Name, o.Op, strings.TrimPrefix(err.Error(), "tensor: "))
		}
	}
	return ts, nil
}

// read reads a regular file. Anything else might never end, or never begin.
func read(name string) ([]byte, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", name)
	}
	if st.Size() > maxFile {
		return nil, fmt.Errorf("%s: %d bytes, at most %d are read into memory", name, st.Size(), int64(maxFile))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, st.Size())
	if _, err := io.ReadFull(f, b); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%s: it became shorter while it was read", name)
	} else if err != nil {
		return nil, err
	}
	return b, nil
}
