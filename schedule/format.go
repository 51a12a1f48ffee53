package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
)

var opNames = [...]string{Send: "send", Recv: "recv", RecvReduce: "recv-reduce", Copy: "copy", Combine: "combine"}

// String is the name in lower case: "recv-reduce".
func (o Op) String() string {
	if o >= Send && int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

var bufNames = [...]string{None: "none", In: "in", Out: "out", Scratch: "scratch"}

// String is the name in lower case: "scratch".
func (b Buf) String() string {
	if int(b) < len(bufNames) {
		return bufNames[b]
	}
	return fmt.Sprintf("buf(%d)", uint8(b))
}

// String is "out[3]" for one chunk and "out[3:5]" for the chunks 3 and 4.
func (a Span) String() string { return string(a.append(nil)) }

func (a Span) append(b []byte) []byte {
	b = append(b, a.Buf.String()...)
	b = append(b, '[')
	b = strconv.AppendInt(b, int64(a.First), 10)
	if a.Count != 1 {
		b = append(b, ':')
		b = strconv.AppendInt(b, int64(a.First+a.Count), 10)
	}
	return append(b, ']')
}

// String is one line of the text form, without indentation:
//
//	send in[0] to 1
//	recv out[2] from 3
//	recv-reduce out[1] = in[1] + from 3      with Left: out[1] = from 3 + in[1]
//	copy out[0] = in[0]
//	combine out[0] = out[0] + scratch[0]     with Left: out[0] = scratch[0] + out[0]
//
// each followed by "final" and "after lane:steps" where they apply.
func (st Step) String() string { return string(st.append(nil)) }

func (st *Step) append(b []byte) []byte {
	b = append(b, st.Op.String()...)
	b = append(b, ' ')
	peer := func(word string) {
		b = append(b, word...)
		b = strconv.AppendInt(b, int64(st.Peer), 10)
	}
	switch st.Op {
	case Send:
		b = st.Src.append(b)
		peer(" to ")
	case Recv:
		b = st.Dst.append(b)
		peer(" from ")
	case RecvReduce:
		b = st.Dst.append(b)
		if st.Left {
			peer(" = from ")
			b = append(b, " + "...)
			b = st.Src.append(b)
		} else {
			b = append(b, " = "...)
			b = st.Src.append(b)
			peer(" + from ")
		}
	case Copy:
		b = st.Dst.append(b)
		b = append(b, " = "...)
		b = st.Src.append(b)
	case Combine:
		l, r := st.Dst, st.Src
		if st.Left {
			l, r = r, l
		}
		b = st.Dst.append(b)
		b = append(b, " = "...)
		b = l.append(b)
		b = append(b, " + "...)
		b = r.append(b)
	}
	if st.Final {
		b = append(b, " final"...)
	}
	if st.After != (After{}) {
		b = append(b, " after "...)
		b = strconv.AppendInt(b, int64(st.After.Lane), 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, int64(st.After.Steps), 10)
	}
	return b
}

// String is the text form, which [Parse] reads back: a line of properties, a line for scratch if
// there is any, and for each lane the line "lane" and its steps, indented.
//
//	allreduce rank 0 of 2 root 0 in 2 out 2 ahead 1 early lazy
//	lane
//	  send in[0] to 1
//	  recv-reduce out[1] = in[1] + from 1 final
//	  …
func (s Schedule) String() string { return string(s.append(nil)) }

func (s *Schedule) append(b []byte) []byte {
	b = fmt.Appendf(b, "%v rank %d of %d root %d in %d out %d ahead %d",
		s.Collective, s.Rank, s.Size, s.Root, s.In, s.Out, s.Ahead)
	for _, f := range s.flags() {
		if *f.set {
			b = append(append(b, ' '), f.name...)
		}
	}
	b = append(b, '\n')
	if len(s.Scratch) > 0 {
		b = append(b, "scratch"...)
		for _, c := range s.Scratch {
			b = append(b, ' ')
			b = At(c.Buf, c.Index).append(b)
		}
		b = append(b, '\n')
	}
	for _, lane := range s.Lanes {
		b = append(b, "lane\n"...)
		for i := range lane {
			b = append(b, "  "...)
			b = lane[i].append(b)
			b = append(b, '\n')
		}
	}
	return b
}

type flag struct {
	name string
	set  *bool
}

// flags lists the properties that are words in the first line, in their order.
func (s *Schedule) flags() []flag {
	return []flag{{"early", &s.Early}, {"lazy", &s.Lazy}, {"disjoint", &s.Disjoint}}
}

// Digest identifies a schedule on every machine: the first 64 bits of the SHA-256 of its text
// form. Ranks that want to know whether they run the same algorithm compare the digests of the
// same rank's schedule, usually rank 0's.
func (s *Schedule) Digest() uint64 {
	sum := sha256.Sum256(s.append(nil))
	return binary.BigEndian.Uint64(sum[:])
}
