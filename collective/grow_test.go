package collective

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/bootstrap/store"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// growing makes a job of two goroutines that others can join.
func growing(t *testing.T, still bool) []*Comm {
	cfg := Config{Timeout: 20 * time.Second, still: still, Bootstrap: bootstrap.Config{Store: store.NewMemory(), RunID: "job"}}
	comms, err := NewLocal(patient(t), 2, cfg)
	require.NoError(t, err)
	return comms
}

// grow has all ranks Grow by n.
func grow(t *testing.T, comms []*Comm, n int) ([]*Comm, []error) {
	ctx := patient(t)
	return recovered(comms, func(c *Comm) (*Comm, error) { return c.Grow(ctx, n) })
}

// Where newcomers cannot find the job, Grow says so once, on all ranks, and changes nothing.
func TestGrowWithoutStore(t *testing.T) {
	comms, err := NewLocal(patient(t), 2, Config{Timeout: 20 * time.Second})
	require.NoError(t, err)
	_, errs := grow(t, comms, 1)
	for _, err := range errs {
		require.ErrorIs(t, err, ErrUnavailable)
		require.Equal(t, 1, strings.Count(err.Error(), ErrUnavailable.Error()), err.Error())
	}
	sums(t, comms)
	closeAll(t, comms...)
}

// waitFor has the ranks look until so many newcomers wait.
func waitFor(t *testing.T, comms []*Comm, n int) {
	t.Helper()
	ctx := patient(t)
	for waiting := -1; waiting != n; {
		each(t, comms, func(c *Comm) error {
			got, err := c.Waiting(ctx)
			if c.Rank() == 0 {
				waiting = got
			}
			return err
		})
		time.Sleep(time.Millisecond)
	}
}

// Newcomers that differ are sent away, all at once, whatever they find out themselves; those that fit wait on,
// though they were invited together, and are taken in next.
func TestGrowSendsAwayWhoDiffers(t *testing.T) {
	defer goleak.VerifyNone(t)
	comms := growing(t, false)
	ctx := patient(t)
	type end struct {
		odd  bool
		comm *Comm
		err  error
	}
	ends := make(chan end, 5)
	for i := range 5 {
		cfg := comms[0].cfg
		if i%2 == 1 {
			cfg.Reproducible = true
		}
		go func() {
			c, err := Join(ctx, cfg)
			ends <- end{i%2 == 1, c, err}
		}()
	}
	waitFor(t, comms, 5)
	_, errs := grow(t, comms, 5)
	for _, err := range errs {
		require.ErrorIs(t, err, ErrMismatch)
		require.ErrorContains(t, err, "GCCL_REPRODUCIBLE")
		require.Equal(t, errs[0].Error(), err.Error(), "alike on all")
	}
	for range 2 {
		e := next(t, ends, "newcomers that differ")
		require.True(t, e.odd, "%v", e.err)
		require.ErrorIs(t, e.err, ErrMismatch)
		require.ErrorContains(t, e.err, "GCCL_REPRODUCIBLE")
	}
	grown, errs := grow(t, comms, 3)
	require.NoError(t, errors.Join(errs...))
	grown = append(grown, nil, nil, nil)
	for range 3 {
		e := next(t, ends, "newcomers that fit")
		require.NoError(t, e.err)
		grown[e.comm.Rank()] = e.comm
	}
	closeAll(t, comms...)
	sums(t, grown)
	closeAll(t, grown...)
}

// come is a newcomer that a test plays: it waits in the hall of a job, with others.
func come(t *testing.T, comms []*Comm, others int) *bootstrap.Contact {
	waitFor(t, comms, others) // which opens the hall
	cfg := comms[0].cfg
	port := cfg.local.OpenPort()
	t.Cleanup(port.Close)
	addrs, secret, err := bootstrap.Find(patient(t), cfg.Bootstrap)
	require.NoError(t, err)
	c, err := port.Call(patient(t), joinCircle("job", secret), bootstrap.ForJoining, 0, addrs)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	waitFor(t, comms, others+1)
	return c
}

func tells(t *testing.T, c *bootstrap.Contact, m fromGuest) {
	b, err := json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, c.Send(b, testTime))
}

func hears(t *testing.T, c *bootstrap.Contact) toGuest {
	b, err := c.Receive()
	require.NoError(t, err)
	var m toGuest
	require.NoError(t, json.Unmarshal(b, &m))
	return m
}

// A newcomer's reason is every rank's.
func TestGrowSaysWhyANewcomerFailed(t *testing.T) {
	comms := growing(t, false)
	c := come(t, comms, 0)
	verdict := make(chan toGuest, 1)
	go func() {
		in := hears(t, c).Invite
		tells(t, c, fromGuest{Name: in.Name, Coming: true})
		tells(t, c, fromGuest{Name: "an older one", Failed: "long ago"})
		tells(t, c, fromGuest{Name: in.Name, Failed: "no memory for it"})
		verdict <- hears(t, c)
	}()
	_, errs := grow(t, comms, 1)
	for _, err := range errs {
		require.ErrorContains(t, err, "no memory for it")
		require.ErrorContains(t, err, "newcomer pid")
		require.NotContains(t, err.Error(), "long ago")
	}
	require.Equal(t, toGuest{Again: true}, next(t, verdict, "the verdict"))
	waitFor(t, comms, 1)
	sums(t, comms)
	closeAll(t, comms...)
}

// A newcomer that differs hears so from rank 0, with the reason, and is not asked again; also if the reason is longer than a
// message can be.
func TestGrowTellsWhoIsRefused(t *testing.T) {
	for _, differ := range []func(*Config){reproducible, func(c *Config) { c.Provider = strings.Repeat("ä\x01", 40<<10) }} {
		comms := growing(t, false)
		c := come(t, comms, 0)
		verdict := make(chan toGuest, 1)
		go func() {
			in := hears(t, c).Invite
			tells(t, c, fromGuest{Name: in.Name, Coming: true})
			other := &Comm{cfg: comms[0].cfg, catalog: catalog()}
			differ(&other.cfg)
			g := other.cfg.local.Join(in.Name, in.Rank, in.Size)
			_, err := g.AllGather(patient(t), helloOf(t, other))
			require.NoError(t, err)
			require.NoError(t, g.Close())
			verdict <- hears(t, c)
		}()
		_, errs := grow(t, comms, 1)
		v := next(t, verdict, "the verdict")
		require.NotNil(t, v.Refused)
		require.ErrorIs(t, v.Refused, ErrMismatch)
		require.True(t, utf8.ValidString(v.Refused.Why))
		for _, err := range errs {
			require.ErrorContains(t, err, v.Refused.Why)
		}
		waitFor(t, comms, 0)
		closeAll(t, comms...)
	}
}

// What others are told is bounded in bytes, wherever its characters end.
func TestToldIsShort(t *testing.T) {
	for i := range 4 {
		long := strings.Repeat("x", i) + strings.Repeat("€", mostWhy)
		short := told(long)
		require.True(t, strings.HasPrefix(long, short))
		require.LessOrEqual(t, len(short), mostWhy)
		require.Greater(t, len(short), mostWhy-utf8.UTFMax)
	}
	require.Equal(t, "as it is", told("as it is"))
	b, err := json.Marshal(toGuest{Refused: faultOf(errors.New(strings.Repeat("\x00", 1<<20)))})
	require.NoError(t, err)
	require.Less(t, len(b), bootstrap.MaxMessage)
}

// A newcomer that is stopped when it has said that it comes keeps nobody until the contexts end, which would be the end of
// the job's communicator.
func TestGrowWithStoppedNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comms := growing(t, true)
		c := come(t, comms, 0)
		go func() {
			tells(t, c, fromGuest{Name: hears(t, c).Invite.Name, Coming: true})
			for {
				if _, err := c.Receive(); err != nil {
					return
				}
			}
		}()
		_, errs := grow(t, comms, 1)
		for _, err := range errs {
			require.ErrorContains(t, err, "not there in time")
		}
		sums(t, comms)
		closeAll(t, comms...)
	})
}

// Newcomers that are stopped, and whose connections are full, keep nobody for longer than sayTime, however many they are.
func TestNewcomersTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comms := growing(t, true)
		for n := range 3 {
			c := come(t, comms, n)
			go func() { tells(t, c, fromGuest{Name: hears(t, c).Invite.Name, Coming: true}) }()
		}
		began := time.Now()
		_, errs := grow(t, comms, 3)
		for _, err := range errs {
			require.ErrorContains(t, err, "not there in time")
		}
		require.LessOrEqual(t, time.Since(began), comms[0].cfg.Timeout/2+sayTime+time.Second)
		sums(t, comms)
		waitFor(t, comms, 0)
		closeAll(t, comms...)
	})
}

// A newcomer that does not answer its invitation is not counted again until it comes again.
func TestGrowWithSilentNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comms := growing(t, true)
		c := come(t, comms, 0)
		go hears(t, c)
		_, errs := grow(t, comms, 1)
		for _, err := range errs {
			require.ErrorIs(t, err, ErrUnavailable)
			require.ErrorContains(t, err, "does not answer")
		}
		waitFor(t, comms, 0)
		closeAll(t, comms...)
	})
}

// A newcomer that goes while it is sent back to the hall is not there.
func TestGuestGoesWhileItIsSentBack(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			comms := growing(t, true)
			c := come(t, comms, 0)
			h := comms[0].standby.hall
			guests, err := h.take(t.Context(), 1)
			require.NoError(t, err)
			go func() {
				hears(t, c)
				c.Close()
			}()
			tellAll(guests, []toGuest{{Again: true}})
			synctest.Wait()
			require.Zero(t, h.count())
			closeAll(t, comms...)
		})
	}
}

// Newcomers must be reached by all ranks before them that are themselves.
func TestApart(t *testing.T) {
	at := func(host string, providers ...string) hello {
		return hello{Host: host, HostID: host, Providers: providers}
	}
	hs := []hello{at("a", "shm", "tcp"), at("b", "tcp"), at("a", "shm"), at("b", "tcp"), at("a", "shm", "tcp"), at("c", "shm")}
	err := apart(hs, 2)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "nothing connects rank 1 (b) and rank 2 (a): they have tcp and shm")
	got := refusals(err, 2)
	require.Len(t, got, 2)
	require.Contains(t, got[5].Why, "rank 0 (a) and rank 5 (c)")
	require.NotNil(t, got[2])
	require.NoError(t, apart(hs[:2], 1))
	require.NoError(t, apart(hs[:2], 2))
	require.Nil(t, refusals(err, 3), "a rank before does not fit")
}
