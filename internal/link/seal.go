package link

import "math/bits"

// A message of up to SealedBytes over posted writes carries a seal in the last word of its line: a hash of all the
// others. Where memory shows writes as they land (rdma.Attr.Early), a receiver looks at the line of the next message,
// and takes it as soon as the seal fits: then every byte has landed, in whatever order they do, and none changes again
// before the sender has its credit. The completion is polled later and only counts. So a message is seen sooner, and
// without a call of the network's library. Whatever else is there, and longer messages, are seen by completions.

// SealedBytes is the longest payload that leaves room for a seal.
const SealedBytes = InlineBytes - 8

// aheadMost is how many messages of a lane may have been taken before their completions are polled: their receives
// are posted again only then.
const aheadMost = 8

// seal is the hash of a line whose publication word is v, without the word of the seal.
func (h *header) seal(v uint64) uint64 {
	x := fold(v^0xa0761d6478bd642f, h.call.FP^0xe7037ed1a0b428db)
	x = fold(x^h.call.A, h.call.B^0x8ebc6af09c88c6e3)
	x = fold(x^h.inline[0], h.inline[1]^0x589965cc75374cc3)
	return fold(x^h.inline[2], 0x1d8e4e27c47d124f)
}

// fold multiplies and folds the product onto itself, as in wyhash, and adds the factors, so that one of 0 or 1, which a
// payload may bring about, does not hide the other.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return (hi ^ lo) + bits.RotateLeft64(a, 23) + bits.RotateLeft64(b, 41)
}

// sealed reports whether a message has a seal.
func sealed(n int, k kind) bool { return k == inLine && n <= SealedBytes }

// here reports whether the oldest message can be taken: its completion has been polled, or it is early.
func (r *wireReceiver) here() bool {
	if ahead := int32(r.l.taken - r.l.arrived); ahead < 0 {
		return true
	} else if !r.wire.early || ahead >= aheadMost {
		return false
	}
	h := r.headers[r.l.taken&uint32(len(r.headers)-1)]
	v := h.pub.Load()
	return published(v, r.l.taken) && sealed(parsePublication(v)) && h.inline[3] == h.seal(v)
}

// Early reports whether short messages from all peers that are not mapped can be seen before Progress: they are
// looked for at less cost then.
func (m *Mesh) Early() bool {
	for w := range m.wires() {
		if !w.early {
			return false
		}
	}
	return true
}
