package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/internal/rail"
)

// stripeMin is the shortest write that is cut into pieces: below 16 KiB a piece, a write more costs a card more than
// its bytes.
const stripeMin = 64 << 10

// outgoing is the sending direction of a bundle, under its mu. Writes below head have completed, those below sent are
// posted on rails, those below next wait for that.
type outgoing struct {
	send             rail.Sender
	head, sent, next uint64
	floor            uint64 // those below it have landed, whatever rails have acknowledged
	records          []record
	inline           []byte // MaxInline bytes a record
	one              [1]rdma.Write

	silent  int    // unsignaled since the last signaled one
	nth     uint64 // with immediate
	stripes uint32 // cut in this round
	cut     bool   // a write without immediate was, since the last with it
	pieces  int    // cut ones that have not completed

	acked  [rail.Max]uint64 // by rail: those below it are acknowledged
	flight [rail.Max]int    // by rail: posted, not acknowledged
	again  bool             // begin again when nothing is in flight

	peerDead   rail.Set // the peer's latest "lost"
	peerLanded uint64
}

// record is a write until it has completed.
type record struct {
	w     rdma.Write
	nth   uint64   // with immediate: which one
	rails rail.Set // that it was posted on
	cut   bool
}

func (o *outgoing) init(n, inline int) {
	o.records, o.inline = make([]record, n), make([]byte, n*inline)
}

func (o *outgoing) at(seq uint64) *record { return &o.records[seq%uint64(len(o.records))] }

// Post takes writes and posts them on rails, unless a rail is being replaced.
func (b *bundle) Post(ws []rdma.Write) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.failureLocked(); err != nil {
		return 0, err
	}
	o := &b.out
	for i := range ws {
		if int(o.next-o.head) == len(o.records) {
			b.pump()
			return i, nil
		}
		if err := b.check(&ws[i]); err != nil {
			b.pump()
			return i, err
		}
		b.keep(&ws[i])
	}
	b.pump()
	return len(ws), nil
}

// check finds the caller's mistakes.
func (b *bundle) check(w *rdma.Write) error {
	if err := checkLength(&b.dev.attr, w, b.out.silent); err != nil || w.Inline || len(w.Local) == 0 {
		return err
	}
	r, ok := w.Region.(*railsRegion)
	if !ok || r.dev != b.dev {
		return fmt.Errorf("verbs: %v: the write's region is not of this device", b)
	}
	return r.parts[0].checkHolds(w.Local)
}

// keep records a write, and copies inline bytes.
func (b *bundle) keep(w *rdma.Write) {
	o := &b.out
	r := o.at(o.next)
	*r = record{w: *w}
	if w.Inline {
		k := int(o.next % uint64(len(o.records)))
		own := o.inline[k*b.dev.attr.MaxInline:][:len(w.Local)]
		copy(own, w.Local)
		r.w.Local = own
	}
	if w.HasImm {
		r.nth = o.nth
		o.nth++
	}
	o.silent++
	if w.Signaled {
		o.silent = 0
	}
	o.next++
}

// pump posts what is kept, as far as it may. mu is held.
func (b *bundle) pump() {
	o := &b.out
	if b.state != ready || o.send.Held() || o.again && !b.beginAgain() {
		return
	}
	for o.sent < o.next && b.transmit(o.sent) {
		o.sent++
	}
}

// transmit posts a write on the rails; false: it waits for pieces of an earlier one.
func (b *bundle) transmit(seq uint64) bool {
	o := &b.out
	r := o.at(seq)
	w := &r.w
	live := b.live()
	lead := live.Lead()
	cut := len(w.Local) >= stripeMin && live.Len() > 1 && (w.HasImm || !o.cut)
	if len(w.Local) > 0 && (cut || o.pieces > 0) {
		for s := o.head; s < seq; s++ {
			if x := o.at(s); overlap(&x.w, w) {
				if x.cut {
					return false
				}
				cut = false
			}
		}
	}
	first := w.Local
	r.rails, r.cut = 0, cut
	if cut {
		o.stripes++
		o.pieces++
		size := ((len(w.Local)+live.Len()-1)/live.Len() + 4095) &^ 4095
		first = w.Local[:size]
		from := size
		for i := range rail.Max {
			if !live.Has(i) || i == lead {
				continue
			}
			to := min(from+size, len(w.Local))
			b.give(i, rdma.Write{
				ID: seq, Local: w.Local[from:to], Region: w.Region, Remote: w.Remote, Offset: w.Offset + uint64(from),
				Imm: bundleImm(bundlePiece, o.send.Dead().Len(), uint64(o.stripes)), HasImm: true, Signaled: true,
			})
			r.rails = r.rails.With(i)
			from = to
		}
	}
	o.cut = !w.HasImm && (cut || o.cut)
	r.rails = r.rails.With(lead)
	if len(first) > 0 || !w.HasImm {
		b.give(lead, rdma.Write{
			ID: seq, Local: first, Region: w.Region, Remote: w.Remote, Offset: w.Offset, Inline: w.Inline, Signaled: !w.HasImm,
		})
	}
	if w.HasImm {
		slot := int(r.nth % uint64(b.peer.depth))
		a := announcement{seq, r.nth, w.Imm, uint32(len(w.Local)), o.stripes, uint32(o.send.Dead().Len())}
		a.encode(b.staging.Bytes()[slot*slotBytes:])
		b.announce(lead, slot, bundleImm(bundleAnnounce, o.send.Dead().Len(), r.nth), seq)
	}
	return true
}

// overlap reports whether two writes go to the same bytes.
func overlap(x, y *rdma.Write) bool {
	if len(x.Local) == 0 {
		return false
	}
	a, c := x.Remote.Addr+x.Offset, y.Remote.Addr+y.Offset
	return a < c+uint64(len(y.Local)) && c < a+uint64(len(x.Local))
}

// announce writes a slot of staging into the same one of the peer's inbox.
func (b *bundle) announce(i, slot int, imm uint32, id uint64) {
	b.give(i, rdma.Write{
		ID: id, Local: b.staging.Bytes()[slot*slotBytes:][:slotUsed], Region: b.staging, Remote: b.peer.inbox, Offset: uint64(slot * slotBytes),
		Imm: imm, HasImm: true, Signaled: true, Inline: slotUsed <= b.dev.attr.MaxInline,
	})
}

// give posts a write on a rail. If that is not possible, the rail is lost, and who posts it finds out by that.
func (b *bundle) give(i int, w rdma.Write) {
	o := &b.out
	if w.Inline || len(w.Local) == 0 {
		w.Region = nil
	} else {
		w.Region = w.Region.(*railsRegion).parts[b.dev.port(i)]
	}
	w.Remote = keyOf(w.Remote, i%b.peer.ports)
	o.one[0] = w
	n, err := b.subs[i].Post(o.one[:])
	if n < 1 {
		if err == nil {
			err = errors.New("its queue is full")
		}
		b.subs[i].lost(brokenBy(err))
		return
	}
	if w.Signaled {
		o.flight[i]++
	}
}

// acknowledged takes the completion of a rail's write. mu is held.
func (b *bundle) acknowledged(i int, c *rdma.Completion) {
	o := &b.out
	if c.Err != nil || !b.live().Has(i) { // the rail's loss is told by itself
		return
	}
	o.flight[i]--
	if c.ID != noNumber {
		o.acked[i] = c.ID + 1
	}
}

// complete reports whether a write has landed.
func (o *outgoing) complete(seq uint64, live rail.Set) bool {
	if seq < o.floor {
		return true
	}
	if seq >= o.sent {
		return false
	}
	rails := o.at(seq).rails
	for i := range rail.Max {
		if rails.Has(i) && (!live.Has(i) || o.acked[i] <= seq) {
			return false
		}
	}
	return true
}

// tellLost says by all rails which are lost. mu is held.
func (b *bundle) tellLost() {
	if b.staging == nil {
		return
	}
	dead := b.out.send.Dead()
	slot := b.stageNotice(lostSlot(dead.Len()), uint64(dead), b.in.landed)
	for i := range rail.Max {
		if b.live().Has(i) {
			b.announce(i, slot, bundleImm(bundleLostRails, 0, uint64(dead.Len())), noNumber)
		}
	}
}

// stageNotice writes the words of a notice, and returns its slot among all.
func (b *bundle) stageNotice(notice int, words ...uint64) (slot int) {
	slot = b.peer.depth + notice
	for i, w := range words {
		binary.LittleEndian.PutUint64(b.staging.Bytes()[slot*slotBytes+8*i:], w)
	}
	return slot
}

// reconcile sees whether both ends have given up the same rails, and begins again then. mu is held.
func (b *bundle) reconcile() {
	o := &b.out
	dead := o.send.Dead()
	if o.peerDead != 0 && dead.Holds(o.peerDead) {
		again, err := o.send.Told(o.peerDead, o.peerLanded, o.head, o.next)
		if err != nil {
			b.refuse("%w", err)
			return
		}
		if again {
			o.again = true
			for _, l := range b.lost[max(0, len(b.lost)-1):] {
				b.dev.ports[0].opts.Logger.Sugar().Warnf("verbs: %v: lost queue pair %d, %d are left and have what it had not delivered: %v",
					b, l.index, b.live().Len(), l.why)
			}
		}
	}
	b.pump()
}

// beginAgain does so with the first write that is not known to have landed; false: some are under way yet.
func (b *bundle) beginAgain() bool {
	o := &b.out
	live := b.live()
	for i := range rail.Max {
		if live.Has(i) && o.flight[i] > 0 {
			return false
		}
	}
	_, told := o.send.Round()
	first := max(told, o.head)
	for o.complete(first, live) && first < o.sent { // by acknowledgements that nobody has polled yet
		first++
	}
	o.again, o.floor, o.sent = false, first, first
	o.stripes, o.cut, o.pieces = 0, false, 0
	for s := o.head; s < first; s++ {
		o.at(s).cut = false
	}
	nth := o.nth
	for s := first; s < o.next; s++ {
		if r := o.at(s); r.w.HasImm {
			nth = r.nth
			break
		}
	}
	for i := range rail.Max {
		o.acked[i] = first
	}
	dead := o.send.Dead()
	slot := b.stageNotice(againSlot(dead.Len()), uint64(dead), first, nth)
	b.announce(live.Lead(), slot, bundleImm(bundleAgain, 0, uint64(dead.Len())), noNumber)
	return true
}
