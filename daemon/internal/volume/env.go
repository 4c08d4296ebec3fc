// SPDX-License-Identifier: Apache-2.0

package volume

import "log/slog"

type env struct {
	Ports
	log *slog.Logger
}
