//go:build !unix

package bootstrap

import (
	"errors"
	"os"

	"go.uber.org/zap"
)

func openFD(int) (*os.File, error) { return nil, errors.New("PMI is supported on Unix only") }

// ReserveFiles does nothing here.
func ReserveFiles(int, *zap.Logger) error { return nil }
