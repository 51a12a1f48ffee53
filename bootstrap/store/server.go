package store

import (
	"context"
	"errors"
	"net"
	"sync"

	"go.uber.org/zap"

	"github.com/gccl/gccl/bootstrap/internal/meet"
	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// serverRun stands for a run id in the handshake with a store, which serves many jobs.
const serverRun = "gccl store"

// maxKeys bounds what a server keeps, at 32 KiB a value.
const maxKeys = 16384

// Server serves a store over TCP to clients that know its secret.
type Server struct {
	memory  *Memory
	door    *meet.Door
	life    context.Context
	end     context.CancelFunc
	log     *zap.Logger
	clients sync.WaitGroup
}

// Serve starts a server on l, which it closes in the end. Without a secret everybody who reaches the
// port may read and write. log may be nil.
func Serve(l net.Listener, secret string, log *zap.Logger) *Server {
	if log == nil {
		log = zap.NewNop()
	}
	if secret == "" {
		log.Warn("the rendezvous store has no secret: whoever reaches its port may use it", zap.Stringer("address", l.Addr()))
	}
	s := &Server{memory: NewMemory(), log: log}
	s.memory.limit = maxKeys
	s.life, s.end = context.WithCancel(context.Background())
	s.door = meet.Open(meet.NewBadge(secret, serverRun, 0), wire.Store, wire.NoRank, log, []net.Listener{l})
	s.clients.Go(s.welcome)
	return s
}

// Close hangs up on all clients and waits until nothing of the server is left.
func (s *Server) Close() error {
	s.end()
	s.door.Close()
	s.clients.Wait()
	return nil
}

func (s *Server) welcome() {
	for {
		select {
		case a := <-s.door.Arrivals:
			s.clients.Go(func() { s.serve(a.Conn) })
		case <-s.life.Done():
			return
		}
	}
}

// serve answers one client's requests. Each is answered when its turn has come, which for a Get may be
// late: requests do not wait for each other.
func (s *Server) serve(conn *wire.Conn) {
	ctx, cancel := context.WithCancel(s.life)
	stop := context.AfterFunc(ctx, func() { conn.Net().Close() })
	defer stop()
	var (
		working sync.WaitGroup
		sending sync.Mutex
		slots   = make(chan struct{}, maxPending)
	)
	conn.MaxData = maxMessage
	defer func() {
		cancel()
		working.Wait()
		conn.Net().Close()
	}()
	for {
		f, err := conn.Receive()
		if err != nil || f.Type != wire.Request {
			return
		}
		r, err := parseRequest(f.Payload)
		if err != nil {
			s.log.Info("dropped a store client", zap.Stringer("from", conn.Net().RemoteAddr()), zap.Error(err))
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		working.Go(func() {
			defer func() { <-slots }()
			answer := s.perform(ctx, r)
			sending.Lock()
			defer sending.Unlock()
			if conn.Send(wire.Frame{Type: wire.Reply, Seq: f.Seq, Payload: answer.append(nil)}) != nil {
				conn.Net().Close()
			}
		})
	}
}

func (s *Server) perform(ctx context.Context, r request) reply {
	var value []byte
	var err error
	switch r.verb {
	case verbSet:
		err = s.memory.Set(ctx, r.key, r.value)
	case verbGet:
		value, err = s.memory.Get(ctx, r.key)
	case verbCompareAndSet:
		err = s.memory.CompareAndSet(ctx, r.key, r.old, r.value)
	case verbDelete:
		err = s.memory.Delete(ctx, r.key)
	}
	switch {
	case err == nil:
		return reply{statusOK, value}
	case errors.Is(err, ErrConflict):
		return reply{statusConflict, []byte(err.Error())}
	}
	return reply{statusError, []byte(err.Error())}
}
