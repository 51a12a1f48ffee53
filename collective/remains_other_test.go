//go:build !linux

package collective_test

import (
	"context"
	"errors"
)

// workConfined needs mount namespaces.
func workConfined(context.Context) error { return errors.ErrUnsupported }
