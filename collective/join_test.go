package collective

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/bootstrap/store"
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/rdma/loopback"
	"github.com/stretchr/testify/require"
)

// played is a job's rank 0 that a test plays, for one newcomer.
type played struct {
	t       *testing.T
	cfg     Config // the newcomer's
	net     *bootstrap.LocalNet
	port    *bootstrap.Port
	hall    *bootstrap.Entrance
	contact *bootstrap.Contact
	said    chan fromGuest
	joined  chan error
	leave   context.CancelFunc
}

// playJob lets a newcomer come, which is what change makes of an ordinary one. It runs in a bubble.
func playJob(t *testing.T, change func(*Config)) *played {
	p := &played{t: t, net: bootstrap.NewLocalNet(), said: make(chan fromGuest, 16), joined: make(chan error, 1)}
	p.cfg = Config{local: p.net, network: loopback.NewNetwork(), yield: runtime.Gosched, still: true, Timeout: time.Hour,
		Bootstrap: bootstrap.Config{Store: store.NewMemory(), RunID: "job"}}
	if change != nil {
		change(&p.cfg)
	}
	p.cfg.defaults()
	p.open()
	ctx, leave := context.WithCancel(t.Context())
	p.leave = leave
	go func() {
		c, err := Join(ctx, p.cfg)
		if err == nil {
			err = c.Close()
		}
		p.joined <- err
	}()
	p.accept()
	return p
}

// open opens the hall of another rank 0, and shows where it is.
func (p *played) open() {
	p.port = p.net.OpenPort()
	p.t.Cleanup(p.port.Close)
	_, _, err := bootstrap.Publish(p.t.Context(), p.cfg.Bootstrap, p.port.Addrs())
	require.NoError(p.t, err)
	p.hall = p.port.Enter(joinCircle("job", ""), bootstrap.ForJoining)
}

// accept waits for the newcomer, and hears it from then on.
func (p *played) accept() {
	var err error
	p.contact, err = p.hall.Accept(p.t.Context())
	require.NoError(p.t, err)
	go func(c *bootstrap.Contact) {
		for {
			b, err := c.Receive()
			if err != nil {
				return
			}
			var m fromGuest
			if json.Unmarshal(b, &m) == nil && !m.Ask {
				p.said <- m
			}
		}
	}(p.contact)
}

func (p *played) say(m toGuest) {
	p.t.Helper()
	b, err := json.Marshal(m)
	require.NoError(p.t, err)
	require.NoError(p.t, p.contact.Send(b, time.Second))
}

// invite invites the newcomer, and hears that it comes.
func (p *played) invite(name string, rank, size, former int) {
	p.t.Helper()
	p.say(toGuest{Invite: &invitation{Name: name, Rank: rank, Size: size, Former: former, Generation: 1}})
	p.coming(name)
}

func (p *played) coming(name string) {
	p.t.Helper()
	require.Equal(p.t, fromGuest{Name: name, Coming: true}, p.hears())
}

func (p *played) hears() fromGuest {
	p.t.Helper()
	select {
	case m := <-p.said:
		return m
	case err := <-p.joined:
		p.t.Fatalf("Join has returned: %v", err)
	case <-time.After(time.Minute):
		p.t.Fatal("the newcomer says nothing")
	}
	return fromGuest{}
}

// ends is the end of Join, which must come.
func (p *played) ends() error {
	p.t.Helper()
	select {
	case err := <-p.joined:
		return err
	case <-time.After(time.Minute):
		p.leave()
		return fmt.Errorf("no end: %w", <-p.joined)
	}
}

// waits checks that the newcomer waits where it is for another invitation, and lets it go.
func (p *played) waits() {
	p.t.Helper()
	p.invite("another", 1, 2, 1)
	p.leave()
	require.ErrorIs(p.t, p.ends(), context.Canceled)
}

// meet is what the other ranks do in the making of a communicator, with settings of their own: they exchange
// hellos. It returns when the newcomer has taken part.
func (p *played) meet(name string, size, newcomer int, settings map[int]func(*Config)) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
	defer cancel()
	var groups []bootstrap.Group
	done := make(chan error, size)
	for r := range size {
		if r == newcomer {
			continue
		}
		cfg := p.cfg
		cfg.TuningFile = ""
		if change := settings[r]; change != nil {
			change(&cfg)
		}
		c := &Comm{cfg: cfg, catalog: catalog()}
		require.NoError(p.t, c.loadTuning())
		h := hello{Version: helloVersion, Host: "h", Providers: []string{"loopback"}, Agreed: agreed(&c.cfg, &c.tuning)}
		b, err := h.encode()
		require.NoError(p.t, err)
		g := p.net.Join(name, r, size)
		groups = append(groups, g)
		go func() {
			_, err := g.AllGather(ctx, b)
			done <- err
		}()
	}
	for range groups {
		<-done // an error if the newcomer has been told to stop
	}
	for _, g := range groups {
		require.NoError(p.t, g.Close())
	}
}

func reproducible(c *Config) { c.Reproducible = true }

// How a making ends for a newcomer depends on why it failed and on what rank 0 says, and not on what comes
// first. At first newcomers that differ were sent to wait for ever if rank 0's word that all had failed came before their
// own making had ended.
func TestVerdictAndMakingInEitherOrder(t *testing.T) {
	mismatch := &fault{"mismatch", "GCCL_REPRODUCIBLE is no good"}
	for _, tc := range []struct {
		name               string
		rank, size, former int
		settings           map[int]func(*Config) // the other ranks'
		verdict            toGuest
		want               error // nil: it waits
		only               string
	}{
		{"it differs", 1, 2, 1, map[int]func(*Config){0: reproducible}, toGuest{Refused: mismatch}, ErrMismatch, ""},
		{"it differs, and rank 0 cannot tell", 1, 2, 1, map[int]func(*Config){0: reproducible}, toGuest{Again: true}, ErrMismatch, "making first"},
		{"it differs, and all is said at once", 1, 2, 1, map[int]func(*Config){0: reproducible}, toGuest{Again: true}, ErrMismatch, "at once"},
		{"another newcomer differs", 1, 3, 1, map[int]func(*Config){2: reproducible}, toGuest{Again: true}, nil, ""},
		{"a newcomer before it differs", 2, 3, 1, map[int]func(*Config){1: reproducible}, toGuest{Again: true}, nil, ""},
		{"a rank of the job differs", 2, 3, 2, map[int]func(*Config){1: reproducible}, toGuest{Again: true}, nil, ""},
		{"rank 0 differs from its job", 2, 3, 2, map[int]func(*Config){0: reproducible}, toGuest{Again: true}, nil, ""},
		{"something else", 1, 2, 1, nil, toGuest{Again: true}, nil, ""},
	} {
		for _, order := range []string{"making first", "verdict first", "at once"} {
			if tc.only != "" && tc.only != order {
				continue
			}
			t.Run(tc.name+"/"+order, func(t *testing.T) {
				for range 10 {
					synctest.Test(t, func(t *testing.T) {
						p := playJob(t, nil)
						p.invite("one", tc.rank, tc.size, tc.former)
						switch order {
						case "making first":
							p.meet("one", tc.size, tc.rank, tc.settings)
							synctest.Wait()
							p.say(tc.verdict)
						case "verdict first":
							p.say(tc.verdict)
							synctest.Wait()
						case "at once":
							p.meet("one", tc.size, tc.rank, tc.settings)
							p.say(tc.verdict)
						}
						if tc.want != nil {
							err := p.ends()
							require.ErrorIs(t, err, tc.want)
							require.ErrorContains(t, err, "GCCL_REPRODUCIBLE")
							return
						}
						synctest.Wait()
						for len(p.said) > 0 { // why its own making ended
							require.NotEmpty(t, (<-p.said).Failed)
						}
						p.waits()
					})
				}
			})
		}
	}
}

// A newcomer that cannot take part says why, and ends once rank 0 has heard.
func TestNewcomerSaysWhyItFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tuning.json")
		b, err := os.ReadFile(tuningFile(t, 1000))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		p := playJob(t, func(c *Config) { c.TuningFile = path })
		require.NoError(t, os.Remove(path))
		p.invite("one", 1, 2, 1)
		p.meet("one", 2, 1, nil)
		m := p.hears()
		require.Equal(t, "one", m.Name)
		require.Contains(t, m.Failed, "GCCL_TUNING_FILE")
		require.Empty(t, p.joined, "rank 0 has not said how it ended")
		p.say(toGuest{Again: true})
		require.ErrorIs(t, p.ends(), ErrInvalid)
	})
}

// What stands between two newcomers may be the other's fault, and a newcomer waits; what stands between it and the job is
// its own.
func TestUnreachableIsWhoseFault(t *testing.T) {
	in := &invitation{Former: 2, Rank: 3, Size: 5}
	to := func(rank int) error {
		return fmt.Errorf("new: %w", &link.ConnectError{Rank: rank, Err: fmt.Errorf("in another namespace: %w", ErrUnavailable)})
	}
	for rank := range in.Former {
		require.ErrorIs(t, (&Comm{}).final(to(rank), in), ErrUnavailable)
	}
	require.NoError(t, (&Comm{}).final(to(2), in))
	require.NoError(t, (&Comm{}).final(to(4), in))
	require.ErrorIs(t, (&Comm{}).final(fmt.Errorf("%w: no memory", ErrUnavailable), in), ErrUnavailable)
}

// Settings that no job can have are refused before anybody is bothered.
func TestJoinChecksItsOwnSettings(t *testing.T) {
	cfg := Config{Bootstrap: bootstrap.Config{Store: store.NewMemory(), RunID: "job"}}
	for _, change := range []func(*Config){
		func(c *Config) { c.TuningFile = filepath.Join(t.TempDir(), "missing.json") },
		func(c *Config) { c.Algo = "nonsense" },
		func(c *Config) { c.refused = invalid("GCCL_SLOTS=x") },
	} {
		wrong := cfg
		change(&wrong)
		_, err := Join(patient(t), wrong)
		require.ErrorIs(t, err, ErrInvalid)
	}
	cfg.Bootstrap.Store = nil
	_, err := Join(patient(t), cfg)
	require.ErrorIs(t, err, bootstrap.ErrConfig)
}

// An invitation that follows a verdict at once is not lost, however long the making takes to end.
func TestInvitationAfterVerdict(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			p := playJob(t, nil)
			p.invite("one", 1, 2, 1)
			p.say(toGuest{Again: true})
			p.say(toGuest{Invite: &invitation{Name: "two", Rank: 1, Size: 2, Former: 1, Generation: 1}})
			m := p.hears()
			if m.Failed != "" { // of the first
				m = p.hears()
			}
			require.Equal(t, fromGuest{Name: "two", Coming: true}, m)
			p.leave()
			require.ErrorIs(t, p.ends(), context.Canceled)
		})
	}
}

// A rank 0 that dies after it has said that all is well leaves newcomers that have a communicator.
func TestWelcomeIsTheLastWord(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			p := playJob(t, nil)
			p.invite("one", 1, 2, 1)
			cfg := p.cfg
			cfg.Group = p.net.Join("one", 0, 2)
			port := &sharedPort{Port: p.port}
			port.users.Store(2)
			cfg.heir = &heir{port: port, generation: 1, former: []int{0, -1}}
			c, err := New(t.Context(), cfg)
			require.NoError(t, err)
			p.say(toGuest{Welcome: true})
			p.contact.Close()
			require.NoError(t, p.ends())
			require.NoError(t, c.Close())
		})
	}
}

// A rank 0 that is stopped keeps its contacts. Newcomers find the one that the job has chosen since.
func TestNewcomerLeavesSilentRank0(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playJob(t, func(c *Config) { c.pulse, c.Heartbeat = true, 10*time.Second })
		silent := p.contact
		p.open()
		began := time.Now()
		p.accept()
		require.Greater(t, time.Since(began), 5*time.Second)
		require.Less(t, time.Since(began), 30*time.Second)
		for range 20 { // as a rank 0 that lives does
			p.say(toGuest{})
			time.Sleep(5 * time.Second)
		}
		p.waits()
		silent.Close()
	})
}

// What rank 0 has said counts, though its end is known, too; without a word the making is ended.
func TestLastWordCounts(t *testing.T) {
	for range 50 {
		for _, welcome := range []bool{true, false} {
			v := &visit{heard: make(chan toGuest, 1)}
			var end context.CancelFunc
			v.life, end = context.WithCancel(t.Context())
			end()
			if welcome {
				v.heard <- toGuest{Welcome: true}
			}
			ready, stopped := make(chan made, 1), false
			if welcome {
				ready <- made{}
			}
			_, verdict := (&Comm{}).both(v, &invitation{}, ready, func() { stopped = true; ready <- made{} })
			require.Equal(t, toGuest{Welcome: welcome}, verdict)
			require.Equal(t, !welcome, stopped)
		}
	}
}
