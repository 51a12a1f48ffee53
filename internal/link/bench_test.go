package link

import "testing"

// What it costs that a message carries the description of its call and that its receiver compares the
// fingerprint: the difference of the two.
func BenchmarkDescription(b *testing.B) {
	headers := make([]header, 256)
	call := Call{FP: 7, A: 1, B: 2}
	b.Run("without", func(b *testing.B) {
		for i := uint32(0); b.Loop(); i++ {
			h := &headers[i%256]
			store(&h.pub, publication(i, 0, 8, inLine), true)
			if !published(h.pub.Load(), i) {
				b.Fatal("not there")
			}
		}
	})
	b.Run("with", func(b *testing.B) {
		for i := uint32(0); b.Loop(); i++ {
			h := &headers[i%256]
			h.call = call
			store(&h.pub, publication(i, 0, 8, inLine), true)
			if !published(h.pub.Load(), i) || h.call.FP != call.FP {
				b.Fatal("not there")
			}
			call.FP++
		}
	})
}
