package wire

import "encoding/binary"

// Table holds the contributions of consecutive ranks: those of First, First+1, ….
type Table struct {
	First uint32
	Data  [][]byte
}

// Parts returns the encoding of t as pieces to be sent one behind the other: a head, then t's data
// itself.
func (t *Table) Parts() [][]byte {
	head := make([]byte, 0, 8+4*len(t.Data))
	head = binary.BigEndian.AppendUint32(head, t.First)
	head = binary.BigEndian.AppendUint32(head, uint32(len(t.Data)))
	parts := make([][]byte, 1, 1+len(t.Data))
	for _, d := range t.Data {
		head = binary.BigEndian.AppendUint32(head, uint32(len(d)))
		if len(d) > 0 {
			parts = append(parts, d)
		}
	}
	parts[0] = head
	return parts
}

// ParseTable reads a table of the given ranks. Its data lie inside b.
func ParseTable(b []byte, first, count int) (Table, error) {
	r := reader{b: b}
	gotFirst, gotCount := r.u32(), r.u32()
	if r.bad || int64(gotFirst) != int64(first) || int64(gotCount) != int64(count) {
		return Table{}, malformed("table of ranks %d+%d instead of %d+%d", gotFirst, gotCount, first, count)
	}
	if len(r.b)/4 < count {
		return Table{}, malformed("table of %d ranks in %d bytes", count, len(b))
	}
	lengths := reader{b: r.take(4 * count)}
	t := Table{First: gotFirst, Data: make([][]byte, count)}
	for i := range t.Data {
		n := int64(lengths.u32())
		if n > int64(len(r.b)) {
			return Table{}, malformed("table entry of %d bytes where %d are left", n, len(r.b))
		}
		t.Data[i] = r.take(int(n))[:n:n]
	}
	return t, r.end()
}
