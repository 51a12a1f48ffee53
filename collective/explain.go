package collective

import (
	"slices"

	"github.com/gccl/gccl/collective/tuner"
)

// PlanInfo says how a call would be made.
type PlanInfo struct {
	Algorithm string   // such as "direct.AllReduceTwoShot"; "transfer" of a Send or Recv
	Providers []string // what carries this rank's messages to its peers, in alphabetical order; empty with one rank
	Channels  int      // copies of the algorithm side by side, each on its share of the data
	Lanes     int      // lists of steps that this rank works off side by side, over all channels
	Windows   int      // how often the schedule is replayed, each time over the next part of the data
	Why       string   // why this algorithm and no other
	// Candidates are all algorithms of the collective with the parameters that were looked at: first
	// the chosen one, then the others by measured or predicted time, at last those that were refused.
	Candidates []tuner.Candidate
}

// Plan says how a call would be made. It checks the call as the call itself does, and sends nothing.
func (c *Comm) Plan(call Call) (PlanInfo, error) {
	var info PlanInfo
	h := c.queue.put(func() (err error) {
		info, err = c.explain(&call)
		return err
	})
	<-h.done
	return info, h.err
}

// explain is Plan on the goroutine that has the turn.
func (c *Comm) explain(call *Call) (PlanInfo, error) {
	if err := c.usable(); err != nil {
		return PlanInfo{}, err
	}
	if err := c.check(call, &c.sh); err != nil {
		return PlanInfo{}, err
	}
	p, err := c.planFor(call, &c.sh)
	if err != nil {
		return PlanInfo{}, err
	}
	info := PlanInfo{Algorithm: p.algorithm, Channels: 1, Lanes: 1, Windows: 1}
	if u := p.later; u != nil {
		if info.Windows, err = u.prog.Windows(u.layout); err != nil {
			return PlanInfo{}, err
		}
	} else {
		info.Windows = p.plan.Windows()
	}
	for r := range c.size {
		if r == c.rank || call.Kind >= Send && r != call.Peer {
			continue
		}
		name, err := c.providerFor(r)
		if err != nil {
			return PlanInfo{}, err
		}
		info.Providers = append(info.Providers, name)
	}
	slices.Sort(info.Providers)
	info.Providers = slices.Compact(info.Providers)
	if call.Kind >= Send {
		return info, nil
	}
	info.Candidates, info.Why = c.tuning.tuner.Explain(c.query(p.key))
	ch, err := c.choose(p.key)
	if err != nil {
		return PlanInfo{}, err
	}
	s, err := ch.info.Make(c.rank, c.size, ch.shape)
	if err != nil {
		return PlanInfo{}, err
	}
	info.Channels = ch.channels
	info.Lanes = len(s.Lanes) * ch.channels
	return info, nil
}
