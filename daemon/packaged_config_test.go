// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/internal/settings/settingstest"
)

func TestThePackagedConfigurationHasEveryKeyWithItsDefault(t *testing.T) {
	settingstest.Packaged(t, "../packaging/config/volferryd.toml", func(path string) (*config.Config, error) {
		return config.Load([]string{"--config", path}, io.Discard)
	}, "connector_pools", "rbd_clusters")
}
