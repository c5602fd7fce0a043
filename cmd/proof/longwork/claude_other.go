//go:build !linux

package longwork

import (
	"context"

	"deepwork/cmd/proof/tty"
)

func (t *trial) claude(context.Context) (*client, error) { return nil, tty.ErrNone }
