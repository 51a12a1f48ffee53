package tuner

import (
	"fmt"
	"slices"

	"github.com/gccl/gccl/schedule"
)

// options lists every algorithm of the collective: refused, or with each set of parameters that is
// worth looking at.
func (t *Tuner) options(q Query) (list []option) {
	row := t.defaultFor(q)
	for i := range t.cfg.Catalog {
		in := &t.cfg.Catalog[i]
		if in.Collective != q.Collective {
			continue
		}
		base := option{Candidate: Candidate{Algorithm: in.Name, Index: i, Channels: 1}}
		if base.Refused = t.refuse(i, in, q); base.Refused != "" {
			list = append(list, base)
			continue
		}
		base.profile, _ = t.profile(i, in)
		add := func(channels, chunk int) {
			o := base
			o.Channels, o.Chunk = channels, chunk
			o.Predicted = duration(t.predict(&o, q))
			o.Measured = t.cfg.File.time(t, &o, q)
			list = append(list, o)
		}
		first := len(list)
		for _, ch := range t.channelChoices(base.profile, q) {
			for _, chunk := range t.chunkChoices(base.profile, q) {
				add(ch, chunk)
			}
		}
		if row != nil && row.algorithm == in.Name && !slices.ContainsFunc(list[first:], func(o option) bool { return t.fits(row, &o, q) }) {
			add(t.channels(row.channels, base.profile), t.chunk(row.chunk, base.profile, q))
		}
	}
	return list
}

// shortMost is the longest call for which algorithms that are for short ones are offered where no measurement says more:
// all to all over tcp between processes of one host is faster up to there (see defaults).
const shortMost = 512 << 10

// refuse says why an algorithm cannot or may not serve a call.
func (t *Tuner) refuse(i int, in *schedule.Info, q Query) string {
	if err := in.Supports(t.cfg.Size, t.shape); err != nil {
		return err.Error()
	}
	switch {
	case q.Uneven && !in.Uneven:
		return "needs blocks of equal lengths"
	case q.InPlace && !in.InPlace:
		return "does not work in place"
	case q.Ordered && !in.Ordered:
		return "the operation does not commute, and the algorithm reorders"
	}
	if !q.Free && !t.cfg.Rules.Allows(i, q.Collective, q.Bytes) {
		return "excluded by GCCL_ALGO"
	}
	p, err := t.profile(i, in)
	if err != nil {
		return err.Error()
	}
	switch {
	case p.lanes > t.cfg.Lanes:
		return fmt.Sprintf("needs %d lanes, there are %d (GCCL_NCHANNELS)", p.lanes, t.cfg.Lanes)
	case p.segments(t.cfg.Slots) < 1:
		return fmt.Sprintf("runs %d chunks ahead, and links hold only %d for certain: raise GCCL_SLOTS", p.ahead, t.cfg.Slots-1)
	}
	if t.cfg.Reproducible && q.Collective.Reduces() && !q.Exact {
		prefix := q.Collective == schedule.Scan || q.Collective == schedule.Exscan
		switch {
		case !in.Canonical:
			return "results are to be reproducible, and it groups the operands in its own way"
		case q.Narrow && !(p.nary && !prefix || p.pairwise && prefix):
			return "results are to be reproducible, and it rounds partial results of this type"
		}
	}
	if row := t.defaultFor(q); in.Short && q.Bytes > shortMost && (row == nil || row.algorithm != in.Name) && !t.cfg.Rules.names(i, q) {
		return "is for short calls"
	}
	if t.cfg.Hosts == nil && TwoLevel(in) && !t.cfg.Rules.names(i, q) {
		return "two levels are for several hosts"
	}
	return ""
}

// profile returns an algorithm's profile, which is made at its first use.
func (t *Tuner) profile(i int, in *schedule.Info) (*profile, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.profiles[i] == nil && t.errs[i] == nil {
		p, err := profileOf(in, t.cfg.Size, t.shape)
		t.profiles[i], t.errs[i] = &p, err
	}
	return t.profiles[i], t.errs[i]
}

// segments is how many segments a chunk may have (schedule.Schedule.MaxSegments).
func (p *profile) segments(slots int) int {
	s := schedule.Schedule{Ahead: p.ahead}
	return s.MaxSegments(slots)
}

// channels is a wanted number of channels, cut to what links and settings have room for.
func (t *Tuner) channels(wanted int, p *profile) int {
	return max(1, min(wanted, t.cfg.Channels, t.cfg.Lanes/max(1, p.lanes)))
}

// channelChoices are the powers of two up to the most, and the most.
func (t *Tuner) channelChoices(p *profile, q Query) []int {
	most := t.channels(t.cfg.Channels, p)
	if q.Pairwise || q.Bytes == 0 {
		most = 1
	}
	var list []int
	for n := 1; n < most; n *= 2 {
		list = append(list, n)
	}
	return append(list, most)
}

// segmentBytes is the most that moves at once.
const segmentBytes = 512 << 10

// chunk is a wanted length of chunks (0: a slot), cut so that no rank waits for a slot for ever.
func (t *Tuner) chunk(wanted int, p *profile, q Query) int {
	if q.Pairwise {
		return 0
	}
	slot := min(t.cfg.SlotBytes, segmentBytes)
	if wanted == 0 {
		wanted = t.cfg.SlotBytes
	}
	if most := p.segments(t.cfg.Slots); most < wanted/slot+1 {
		wanted = min(wanted, most*slot)
	}
	return wanted
}

// chunkChoices: a slot, or a few, for fewer windows to wait in; of chains and trees also less, which fills them sooner; of lent memory
// also more, which means fewer messages.
func (t *Tuner) chunkChoices(p *profile, q Query) []int {
	wanted := []int{0, 4 * t.cfg.SlotBytes}
	if q.Registered && p.lazy {
		wanted = append(wanted, 1*mib, 2*mib)
	}
	if q.Collective.Rooted() && p.steps > 2 {
		wanted = append(wanted, t.cfg.SlotBytes/4, t.cfg.SlotBytes/16)
	}
	var list []int
	for _, w := range wanted {
		c := t.chunk(w, p, q)
		if len(list) == 0 || c > 0 && c < q.Bytes && c != list[0] {
			list = append(list, c)
		}
	}
	return list
}

// fits tells whether an option has the parameters of a row of the defaults.
func (t *Tuner) fits(r *row, o *option, q Query) bool {
	return o.Channels == t.channels(r.channels, o.profile) && o.Chunk == t.chunk(r.chunk, o.profile, q)
}
