package store

import (
	"context"
	"fmt"
	"net/url"
)

// Open opens the store that a URL names: "file:///dir" or "tcp://host:port". The secret is that of a
// TCP store's server.
func Open(ctx context.Context, rawURL, secret string) (Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	switch {
	case u.Scheme == "file" && (u.Host == "" || u.Host == "localhost") && u.Path != "":
		return NewFile(u.Path)
	case u.Scheme == "file":
		return nil, fmt.Errorf("store: %q: want file:///directory", rawURL)
	case u.Scheme == "tcp" && u.Host != "" && (u.Path == "" || u.Path == "/"):
		return Dial(ctx, u.Host, secret)
	case u.Scheme == "tcp":
		return nil, fmt.Errorf("store: %q: want tcp://host:port", rawURL)
	}
	return nil, fmt.Errorf("store: %q: this build opens file:///directory and tcp://host:port; "+
		"open others in the program and hand them over as Config.Store", rawURL)
}
