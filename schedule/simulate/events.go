package simulate

// Kinds of events.
const (
	laneRuns    uint8 = iota // a lane may be able to go on
	leavesRank               // the next segment of a link leaves the sender's port
	reachesRank              // the first byte of the next segment of a link reaches the receiver
)

type event struct {
	time float64
	seq  uint64 // of equal times the event that was planned first comes first
	id   int32  // lane or link
	kind uint8
}

func (a *event) before(b *event) bool { return a.time < b.time || a.time == b.time && a.seq < b.seq }

// events is a binary heap, earliest event first.
type events struct {
	heap []event
	seq  uint64
}

func (h *events) push(time float64, kind uint8, id int32) {
	h.seq++
	ev := event{time, h.seq, id, kind}
	h.heap = append(h.heap, ev)
	list := h.heap
	i := len(list) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !ev.before(&list[up]) {
			break
		}
		list[i] = list[up]
		i = up
	}
	list[i] = ev
}

// pop must not be called on an empty heap.
func (h *events) pop() event {
	list := h.heap
	top, ev := list[0], list[len(list)-1]
	list = list[:len(list)-1]
	h.heap = list
	i := 0
	for {
		child := 2*i + 1
		if child >= len(list) {
			break
		}
		if child+1 < len(list) && list[child+1].before(&list[child]) {
			child++
		}
		if !list[child].before(&ev) {
			break
		}
		list[i] = list[child]
		i = child
	}
	if len(list) > 0 {
		list[i] = ev
	}
	return top
}
