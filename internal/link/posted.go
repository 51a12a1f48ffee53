package link

// posted is the layout of a section over posted writes: of a lane all entries, each a header and room for a short
// payload behind it, so that one write carries both, and then the slots for longer payloads.
type posted struct{ Geometry }

// shortMost is the longest payload that goes behind its header.
const shortMost = 4 << 10

// entriesLeast is the least number of entries of a lane. It is less than headersLeast because each has room for 4 KiB.
const entriesLeast = 64

// headers is the number of entries.
func (g posted) headers() int { return max(g.Slots, entriesLeast) }

// lag is how many consumed messages make a credit due where none had a slot.
func (g posted) lag() int { return max(1, g.headers()/creditBatch) }

// shortBytes is the longest payload that goes behind its header, its sum included.
func (g posted) shortBytes() int { return min(shortMost, g.roomBytes()) }

func (g posted) entryBytes() int { return lineBytes + g.shortBytes() }

func (g posted) laneBytes() int {
	return grantLines*lineBytes + g.headers()*g.entryBytes() + g.Slots*g.roomBytes()
}

func (g posted) sectionBytes() int { return (noticeBytes + g.Lanes*g.laneBytes() + 4095) &^ 4095 }

func (g posted) laneOffset(lane int) int { return noticeBytes + lane*g.laneBytes() }

// grantOffset is the place of a grant, whose receiver sends on the lane.
func (g posted) grantOffset(lane, i int) int { return g.laneOffset(lane) + i*lineBytes }

func (g posted) entryOffset(lane, i int) int {
	return g.grantOffset(lane, grantLines) + i*g.entryBytes()
}

func (g posted) slotOffset(lane, slot int) int {
	return g.entryOffset(lane, g.headers()) + slot*g.roomBytes()
}

// touched is Geometry.touched.
func (g posted) touched(section []byte, lanes int) [2][]byte {
	if lanes == 0 {
		return [2][]byte{section[:g.laneOffset(0)]}
	}
	return parts(section, g.laneOffset(lanes), g.laneOffset(g.Lanes-1))
}

// recvDepth is how many writes with immediate from one peer a rank can have not polled: of each lane a ring of
// data and what was taken before it was polled, the credits for a ring of data in the other direction, due for slots
// or for entries, grants, and a notice.
func (g posted) recvDepth() int {
	return g.Lanes*(g.headers()+aheadMost+g.Slots+creditBatch+1+grantLines) + 1
}
