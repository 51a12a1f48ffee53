package collective

import (
	"context"
	"testing"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/stretchr/testify/require"
)

// A newcomer that declines is let go, and is none that has taken its invitation.
func TestGuestDeclines(t *testing.T) {
	net := bootstrap.NewLocalNet()
	at, from := net.OpenPort(), net.OpenPort()
	defer at.Close()
	defer from.Close()
	h := &hall{withdraw: func() {}, changed: make(chan struct{}), entrance: at.Enter(joinCircle("run", ""), bootstrap.ForJoining)}
	h.life, h.end = context.WithCancel(context.Background())
	h.workers.Go(h.accept)
	defer h.close()
	contact, err := from.Call(t.Context(), joinCircle("run", ""), bootstrap.ForJoining, 0, at.Addrs())
	require.NoError(t, err)
	defer contact.Close()
	guests, err := h.take(t.Context(), 1)
	require.NoError(t, err)
	go guests[0].invite(t.Context(), &invitation{Name: "a"})
	_, err = contact.Receive()
	require.NoError(t, err)
	require.NoError(t, contact.Send([]byte(`{"name":"another","coming":true}`), time.Minute))
	require.NoError(t, contact.Send([]byte(`{"name":"a","coming":false}`), time.Minute))
	select {
	case <-guests[0].life.Done():
	case <-guests[0].coming:
		t.Fatal("taken for one that comes")
	}
	require.Empty(t, guests[0].coming)
}

// A newcomer that cannot be told to wait for another invitation does not wait for one.
func TestUntoldIsNotSentBack(t *testing.T) {
	net := bootstrap.NewLocalNet()
	at, from := net.OpenPort(), net.OpenPort()
	defer at.Close()
	defer from.Close()
	entrance := at.Enter(joinCircle("run", ""), bootstrap.ForJoining)
	defer entrance.Close()
	h := &hall{life: t.Context(), changed: make(chan struct{})}
	var guests []*guest
	for range 3 {
		contact, err := from.Call(t.Context(), joinCircle("run", ""), bootstrap.ForJoining, 0, at.Addrs())
		require.NoError(t, err)
		defer contact.Close()
		go func() {
			for err := error(nil); err == nil; {
				_, err = contact.Receive()
			}
		}()
		here, err := entrance.Accept(t.Context())
		require.NoError(t, err)
		guests = append(guests, newGuest(h, here)) // which nobody listens to: that is later than the end of tellAll
	}
	guests[1].contact.Close()
	tellAll(guests, []toGuest{{Again: true}, {Again: true}, {Again: true}})
	require.Len(t, h.guests, 2)
	require.Same(t, guests[0], h.guests[0])
	require.Same(t, guests[2], h.guests[1])
}
