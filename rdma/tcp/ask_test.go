//go:build linux

package tcp

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gccl/gccl/rdma"
)

// asked builds the headers of all that is posted and returns which writes ask to be told.
func asked(t *transmitter) (ns []uint64) {
	for ; t.next < t.tail; t.next++ {
		p := t.at(t.next)
		if t.askLocked(p); p.flags&flagAck != 0 {
			ns = append(ns, t.next)
		}
	}
	return ns
}

func TestLastSignaledWriteAsks(t *testing.T) {
	b := make([]byte, ackBytes/2)
	for name, c := range map[string]struct {
		sizes   []int
		silent  map[int]bool // not signaled
		refused map[int]bool
		want    []uint64
	}{
		"one":                  {[]int{8}, nil, nil, []uint64{0}},
		"the last of some":     {[]int{8, 8, 8}, nil, nil, []uint64{2}},
		"every half MiB":       {[]int{ackBytes / 2, ackBytes / 2, 8, 8, ackBytes / 2, ackBytes / 2}, nil, nil, []uint64{1, 5}},
		"every half ring":      {make([]int, 16), nil, nil, []uint64{7, 15}},
		"before a silent one":  {[]int{8, 8, 8}, map[int]bool{1: true}, nil, []uint64{0, 2}},
		"none that is silent":  {[]int{8, 8}, map[int]bool{0: true, 1: true}, nil, nil},
		"before a refused one": {[]int{8, 8, 8}, nil, map[int]bool{1: true}, []uint64{0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			x := transmitter{ring: make([]posted, 16)}
			for i, n := range c.sizes {
				w := rdma.Write{Local: b[:n], Signaled: !c.silent[i], Remote: rdma.RemoteRegion{Len: ackBytes}}
				if c.refused[i] {
					w.Offset = ackBytes + 1
					w.Local = b[:8]
				}
				x.takeLocked(&w)
			}
			assert.Equal(t, c.want, asked(&x))
		})
	}
}
