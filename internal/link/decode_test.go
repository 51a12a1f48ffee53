package link

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGeometryCheck(t *testing.T) {
	require.NoError(t, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}.Check())
	for _, g := range []Geometry{
		{}, {Lanes: 0, Slots: 2, SlotBytes: 64}, {Lanes: 65, Slots: 2, SlotBytes: 64}, {Lanes: 1, Slots: 1, SlotBytes: 64}, {Lanes: 1, Slots: 3, SlotBytes: 64},
		{Lanes: 1, Slots: 1 << 13, SlotBytes: 64}, {Lanes: 1, Slots: 2, SlotBytes: 0}, {Lanes: 1, Slots: 2, SlotBytes: 100}, {Lanes: 1, Slots: 2, SlotBytes: 1 << 31},
		{Lanes: 1, Slots: 2, SlotBytes: 64, PoolLanes: 2, PoolBytes: 64}, {Lanes: 1, Slots: 2, SlotBytes: 64, PoolLanes: -1}, {Lanes: 1, Slots: 2, SlotBytes: 64, PoolLanes: 1},
		{Lanes: 1, Slots: 2, SlotBytes: 64, PoolLanes: 1, PoolBytes: 100}, {Lanes: 1, Slots: 2, SlotBytes: 64, PoolLanes: 1, PoolBytes: 1 << 31},
	} {
		require.Error(t, g.Check(), "%+v", g)
	}
}

// The parts of a section follow one another without overlap, headers on cache lines.
func TestSectionLayout(t *testing.T) {
	g := Geometry{Lanes: 3, Slots: 4, SlotBytes: 192}
	end := noticeBytes
	for lane := range g.Lanes {
		require.Equal(t, end, g.creditOffset(lane))
		end += lineBytes
		for i := range g.headers() {
			require.Equal(t, end, g.headerOffset(lane, i))
			require.Zero(t, end%lineBytes)
			end += lineBytes
		}
		require.Equal(t, end, g.payloadOffset(lane))
		end += g.Slots * g.SlotBytes
	}
	require.LessOrEqual(t, end, g.sectionBytes())
	require.Zero(t, g.sectionBytes()%4096)
}

// Nor do they over posted writes, with slots longer and shorter than what goes behind a header.
func TestPostedSectionLayout(t *testing.T) {
	for _, bytes := range []int{192, 8 << 10} {
		for _, sums := range []bool{false, true} {
			g := posted{Geometry{Lanes: 3, Slots: 4, SlotBytes: bytes, Checksum: sums}}
			require.LessOrEqual(t, g.shortBytes(), g.roomBytes())
			end := noticeBytes
			for lane := range g.Lanes {
				require.Equal(t, end, g.laneOffset(lane))
				require.Equal(t, end, g.grantOffset(lane, 0))
				end += grantLines * lineBytes
				for i := range g.headers() {
					require.Equal(t, end, g.entryOffset(lane, i))
					require.Zero(t, end%lineBytes)
					end += lineBytes + g.shortBytes()
				}
				for i := range g.Slots {
					require.Equal(t, end, g.slotOffset(lane, i))
					require.Zero(t, end%lineBytes)
					end += g.roomBytes()
				}
			}
			require.LessOrEqual(t, end, g.sectionBytes())
			require.Zero(t, g.sectionBytes()%4096)
		}
	}
}

func TestPublicationRoundTrip(t *testing.T) {
	for _, seq := range []uint32{0, 1, 77, 1<<32 - 2} {
		for _, n := range []int{0, 1, 1 << 20, MaxMessage} {
			for k := inLine; k <= placedK; k++ {
				v := publication(seq, seq*3, n, k)
				m, kk := parsePublication(v)
				require.True(t, published(v, seq))
				require.False(t, published(v, seq-4096))
				require.Equal(t, uint16(seq*3), creditOf(v))
				require.Equal(t, n, m)
				require.Equal(t, k, kk)
			}
		}
	}
}

func TestNoticeRoundTrip(t *testing.T) {
	long := string(make([]byte, 3*noticeBytes))
	for _, n := range []*Notice{
		{CauseLost, 1, 2, "rank 2 is gone"},
		{CauseClosed, 3, 0, ""},
		{CauseMismatch, 0, 7, long},
	} {
		b := n.Marshal()
		got, err := ParseNotice(b, n.From, 8)
		require.NoError(t, err)
		n.Text = n.Text[:min(len(n.Text), maxNoticeText)]
		require.Equal(t, n, got)
		_, err = ParseNotice(b, n.From+1, 8)
		require.Error(t, err, "a notice from somebody else")
		_, err = ParseNotice(b[:len(b)-1], n.From, 8)
		require.Error(t, err, "a notice cut short")
	}
}

func FuzzNotice(f *testing.F) {
	b := make([]byte, noticeBytes)
	(&Notice{CauseLost, 1, 2, "gone"}).encode(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		board := make([]byte, noticeBytes)
		copy(board, b)
		n, err := decodeNotice(board, 1, 4)
		if err != nil {
			return
		}
		if n.From != 1 || n.Culprit >= 4 || n.Culprit < 0 || len(n.Text) > maxNoticeText {
			t.Fatalf("%+v", n)
		}
	})
}

func blob(addrs ...string) (b []byte) {
	for _, a := range addrs {
		b = binary.AppendUvarint(b, uint64(len(a)))
		b = append(b, a...)
		if a != "" {
			for i := range 6 {
				b = binary.LittleEndian.AppendUint64(b, uint64(len(a)*10+i))
			}
		}
	}
	return b
}

func TestDecodeBlob(t *testing.T) {
	b := blob("", "one", "third!")
	e, err := decodeBlob(b, 3, 2)
	require.NoError(t, err)
	require.Equal(t, "third!", string(e.addr))
	require.Equal(t, uint64(60), e.remote.Addr)
	require.Equal(t, uint64(63), e.base)
	require.Equal(t, uint64(64), e.pool)
	require.Equal(t, uint64(65), e.at)
	for name, bad := range map[string][]byte{
		"short": b[:len(b)-1], "long": append(b[:len(b):len(b)], 0), "empty": nil, "no entry for me": blob("a", "b", ""),
	} {
		_, err := decodeBlob(bad, 3, 2)
		require.Error(t, err, name)
	}
}

func FuzzBlob(f *testing.F) {
	f.Add(blob("", "one", "third!"), 2)
	f.Fuzz(func(t *testing.T, b []byte, me int) {
		if e, err := decodeBlob(b, 3, me); err == nil && len(e.addr) == 0 {
			t.Fatal("an entry without an address")
		}
	})
}

// Whatever a slot's header holds, parse returns bytes inside the slot or the window, or an error.
func FuzzHeader(f *testing.F) {
	f.Add(publication(4, 0, 20, inLine), uint64(0), uint64(0), uint64(0), uint64(0))
	f.Add(publication(4, 0, 200, inSlot), uint64(30), uint64(0), uint64(0), uint64(0))
	f.Add(publication(4, 0, 200, lent), uint64(1), uint64(90), uint64(1), uint64(3))
	f.Fuzz(func(t *testing.T, pub, a, b, c, d uint64) {
		p := &Peer{Rank: 1, windows: [][]byte{nil, make([]byte, 300)}}
		h := &header{inline: [4]uint64{a, b, c, d}}
		var m Message
		err := p.parse(&m, h, pub, make([]byte, 256), 0)
		if err == nil && !m.Placed && len(m.Data) != m.Len {
			t.Fatalf("%d bytes of %d", len(m.Data), m.Len)
		}
	})
}
