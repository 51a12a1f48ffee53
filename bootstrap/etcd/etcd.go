// Package etcd is a rendezvous store in an etcd v3 cluster.
//
// It is a module of its own, so that programs that do not use it link neither gRPC nor protobuf:
//
//	s, err := etcd.Open(ctx, "etcd://host-a:2379,host-b:2379/jobs", etcd.Options{TTL: time.Hour})
//	…
//	cfg.Store = s
//	group, err := bootstrap.Connect(ctx, cfg)
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/gccl/gccl/bootstrap/store"
)

// Options are what a URL does not say. The zero value is a plain connection and values that stay.
type Options struct {
	// TTL is how long a value stays after it was set, rounded up to seconds; 0 means for ever. It
	// clears away what crashed jobs leave.
	TTL time.Duration

	// TLS secures the connections; it is needed for "etcds://" only to add certificates.
	TLS *tls.Config

	// Username and Password are for clusters with authentication.
	Username, Password string

	// Logger receives what etcd's client has to say; nil means none.
	Logger *zap.Logger
}

// Store implements store.Store.
type Store struct {
	client *clientv3.Client
	prefix string
	ttl    time.Duration
	owned  bool
}

var _ store.Store = (*Store)(nil)

// New returns a store that keeps its keys under prefix/ in the cluster of client. The client stays the
// caller's. ttl is as in Options.
func New(client *clientv3.Client, prefix string, ttl time.Duration) (*Store, error) {
	prefix = strings.Trim(prefix, "/")
	if prefix != "" {
		if err := store.CheckKey(prefix); err != nil {
			return nil, err
		}
		prefix += "/"
	}
	return &Store{client: client, prefix: prefix, ttl: ttl}, nil
}

// Open connects to the cluster that a URL names: "etcd://host:port[,host:port…][/prefix]", or with the
// scheme "etcds" over TLS. It fails if no member answers before ctx is done.
func Open(ctx context.Context, rawURL string, o Options) (*Store, error) {
	endpoints, prefix, secure, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if secure && o.TLS == nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: o.TLS, Username: o.Username, Password: o.Password,
		Logger: o.Logger, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		// The client lives longer than ctx; each call has a context of its own.
		Context: context.WithoutCancel(ctx),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	s, err := New(client, prefix, o.TTL)
	if err == nil {
		s.owned = true
		_, err = client.Get(ctx, s.prefix+"gccl-probe", clientv3.WithCountOnly())
	}
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("etcd: %s: %w", rawURL, err)
	}
	return s, nil
}

func parseURL(rawURL string) (endpoints []string, prefix string, secure bool, err error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || scheme != "etcd" && scheme != "etcds" {
		return nil, "", false, fmt.Errorf("etcd: %q: want etcd://host:port[,host:port][/prefix]", rawURL)
	}
	hosts, prefix, _ := strings.Cut(rest, "/")
	transport := map[string]string{"etcd": "http", "etcds": "https"}[scheme]
	for _, host := range strings.Split(hosts, ",") {
		u, err := url.Parse(transport + "://" + host)
		if err != nil || u.Port() == "" || u.Hostname() == "" || u.User != nil {
			return nil, "", false, fmt.Errorf("etcd: %q: %q is not host:port", rawURL, host)
		}
		endpoints = append(endpoints, u.String())
	}
	return endpoints, prefix, scheme == "etcds", nil
}

// Set implements store.Store.
func (s *Store) Set(ctx context.Context, key string, value []byte) error {
	if err := store.Check(key, value); err != nil {
		return err
	}
	options, err := s.lease(ctx)
	if err != nil {
		return err
	}
	if _, err := s.client.Put(ctx, s.prefix+key, string(value), options...); err != nil {
		return fmt.Errorf("etcd: set %s: %w", key, err)
	}
	return nil
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	// A watch needs a leader: without one it would wait for ever in a minority partition.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for {
		now, err := s.client.Get(ctx, s.prefix+key)
		if err != nil {
			return nil, fmt.Errorf("etcd: get %s: %w", key, err)
		}
		if len(now.Kvs) > 0 {
			return now.Kvs[0].Value, nil
		}
		value, err := s.watch(ctx, key, now.Header.Revision+1)
		if value != nil || err != nil {
			return value, err
		}
	}
}

// watch waits for a value to be set from a revision on. It returns nil if the watch has to be begun
// anew.
func (s *Store) watch(ctx context.Context, key string, revision int64) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for answer := range s.client.Watch(ctx, s.prefix+key, clientv3.WithRev(revision), clientv3.WithFilterDelete()) {
		if answer.CompactRevision != 0 {
			return nil, nil // history is gone: look again
		}
		if err := answer.Err(); err != nil {
			return nil, fmt.Errorf("etcd: waiting for key %s: %w", key, err)
		}
		for _, event := range answer.Events {
			return append([]byte{}, event.Kv.Value...), nil
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("etcd: waiting for key %s: %w", key, context.Cause(ctx))
	}
	return nil, errors.New("etcd: the client was closed")
}

// CompareAndSet implements store.Store.
func (s *Store) CompareAndSet(ctx context.Context, key string, old, value []byte) error {
	if err := store.Check(key, value); err != nil {
		return err
	}
	expected := clientv3.Compare(clientv3.CreateRevision(s.prefix+key), "=", 0)
	if old != nil {
		expected = clientv3.Compare(clientv3.Value(s.prefix+key), "=", string(old))
	}
	options, err := s.lease(ctx)
	if err != nil {
		return err
	}
	done, err := s.client.Txn(ctx).If(expected).Then(clientv3.OpPut(s.prefix+key, string(value), options...)).Commit()
	if err != nil {
		return fmt.Errorf("etcd: compare and set %s: %w", key, err)
	}
	if !done.Succeeded {
		return fmt.Errorf("%w: key %s", store.ErrConflict, key)
	}
	return nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, prefix string) error {
	if err := store.CheckPrefix(prefix); err != nil {
		return err
	}
	if _, err := s.client.Delete(ctx, s.prefix+prefix, clientv3.WithPrefix()); err != nil {
		return fmt.Errorf("etcd: delete %s: %w", prefix, err)
	}
	return nil
}

// Close implements store.Store. It closes the client if Open made it.
func (s *Store) Close() error {
	if !s.owned {
		return nil
	}
	return s.client.Close()
}

// lease returns the options that limit a value's life.
func (s *Store) lease(ctx context.Context) ([]clientv3.OpOption, error) {
	if s.ttl <= 0 {
		return nil, nil
	}
	lease, err := s.client.Grant(ctx, int64((s.ttl+time.Second-1)/time.Second))
	if err != nil {
		return nil, fmt.Errorf("etcd: grant a lease: %w", err)
	}
	return []clientv3.OpOption{clientv3.WithLease(lease.ID)}, nil
}
