package meet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// describe lists what became of each address, and what to do about it.
func (a *attempts) describe() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var b strings.Builder
	for i, addr := range slices.Sorted(maps.Keys(a.seen)) {
		if i == 16 {
			fmt.Fprintf(&b, "; and %d more addresses", len(a.seen)-i)
			break
		}
		v := a.seen[addr]
		fmt.Fprintf(&b, "; %s: ", addr)
		if v.tries > 1 {
			fmt.Fprintf(&b, "%d tries, at last ", v.tries)
		}
		b.WriteString(advise(v.err))
	}
	return b.String()
}

// advise says what an attempt's error means to the user.
func advise(err error) string {
	var dns *net.DNSError
	var refused *wire.Refused
	switch {
	case err == nil:
		return "the connection broke during the handshake"
	case errors.As(err, &dns):
		return err.Error() + " (use an address, or a name that this host can resolve)"
	case errors.As(err, &refused), errors.Is(err, wire.ErrSecret), errors.Is(err, wire.ErrFormat):
		return err.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused (nobody listens there: has that rank started, and is the port right?)"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return rootCause(err).Error() + " (choose another interface on that host with GCCL_SOCKET_IFNAME)"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return errUnanswered.Error()
	}
	return rootCause(err).Error()
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// rootCause strips the addresses that package net puts around an error.
func rootCause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
