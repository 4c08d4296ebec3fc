// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/quota"
)

func TestDoctorNamesTheQuotaForWhichGuestsAreNotPaused(t *testing.T) {
	for who, l := range map[string]quota.Limit{
		"user root (10GiB, 1GiB used)":  {Kind: quota.User, Bytes: 10 << 30, UsedBytes: 1 << 30},
		"group 107 (10GiB, 1GiB used)":  {Kind: quota.Group, ID: 107, Bytes: 10 << 30, UsedBytes: 1 << 30},
		"project 42 (10GiB, 1GiB used)": {Kind: quota.Project, ID: 42, Bytes: 10 << 30, UsedBytes: 1 << 30},
	} {
		if c := underQuota("there is room", l); c.Status != "warn" || !strings.Contains(c.Message, who) || !strings.Contains(c.Message, "error_policy='stop'") {
			t.Errorf("%s: %+v", who, c)
		}
	}
}
