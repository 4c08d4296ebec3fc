// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

// Space checks the space for the images of migrations: dst, and the overlays. It is safe for
// concurrent use.
type Space struct {
	cfg       *move.Config
	files     files
	history   *history.Reader
	log       *slog.Logger
	pools     poolLister
	qemuUsers hv.QEMUUsers
}

func newSpace(cfg *move.Config, ports *move.Ports, reader *history.Reader, log *slog.Logger) *Space {
	return &Space{cfg: cfg, files: ports.Images, history: reader, log: log, pools: ports.HV, qemuUsers: ports.HV}
}
