// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"

	"github.com/volferry/volferry/internal/settings/settingstest"
)

func TestThePackagedConfigurationHasEveryKeyWithItsDefault(t *testing.T) {
	settingstest.Packaged(t, "../packaging/config/registry.toml", func(path string) (*config, error) {
		loaded, err := loadConfig([]string{"--config", path}, "", io.Discard)
		if err != nil {
			return nil, err
		}
		return loaded.Config, nil
	}, "shared_pools")
}
