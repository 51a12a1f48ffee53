// Package fashion holds 2,000 labelled images of Fashion-MNIST (Zalando SE, MIT licence; see
// ATTRIBUTION.md).
package fashion

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
)

// Pixels is the number of pixels of an image, 28 rows of 28; Classes is the number of labels.
const (
	Pixels  = 28 * 28
	Classes = 10
)

//go:embed images.idx.gz
var images []byte

//go:embed labels.idx.gz
var labels []byte

// Set is a run of images and what each shows.
type Set struct {
	Images []byte // Pixels bytes an image, row by row, 0 is black
	Labels []byte // below Classes
}

// Len is the number of images.
func (s Set) Len() int { return len(s.Labels) }

// Slice is the images [lo, hi).
func (s Set) Slice(lo, hi int) Set {
	return Set{s.Images[lo*Pixels : hi*Pixels], s.Labels[lo:hi]}
}

// Load unpacks the images.
func Load() (Set, error) {
	im, err := idx(images, 28, 28)
	if err != nil {
		return Set{}, fmt.Errorf("fashion: images: %w", err)
	}
	lb, err := idx(labels)
	if err != nil {
		return Set{}, fmt.Errorf("fashion: labels: %w", err)
	}
	s := Set{im, lb}
	if len(im) != s.Len()*Pixels {
		return Set{}, fmt.Errorf("fashion: %d bytes of images for %d labels", len(im), s.Len())
	}
	for i, l := range lb {
		if l >= Classes {
			return Set{}, fmt.Errorf("fashion: label %d is %d", i, l)
		}
	}
	return s, nil
}

// idx unpacks an IDX file of bytes: a magic number whose last byte is the number of dimensions, the
// dimensions, all big-endian, and the data.
func idx(packed []byte, item ...uint32) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	head := 4 * (2 + len(item))
	if len(b) < head || binary.BigEndian.Uint32(b) != 0x800+uint32(1+len(item)) {
		return nil, fmt.Errorf("not an IDX file of %d dimensions", 1+len(item))
	}
	size := int(binary.BigEndian.Uint32(b[4:]))
	for i, want := range item {
		got := binary.BigEndian.Uint32(b[8+4*i:])
		if got != want {
			return nil, fmt.Errorf("dimension %d is %d, want %d", 1+i, got, want)
		}
		size *= int(got)
	}
	if len(b)-head != size {
		return nil, fmt.Errorf("%d bytes of data, the header says %d", len(b)-head, size)
	}
	return b[head:], nil
}
