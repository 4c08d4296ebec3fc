// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

const rulesFile = "/etc/apparmor.d/libvirt/libvirt-x.files"

// saysHow checks that a refusal says what to do about a rule against writing to the image.
func saysHow(t *testing.T, refused *api.Error, path string) {
	t.Helper()
	if refused == nil || refused.Code != api.CodePermissionDenied {
		t.Fatalf("%v, want permission_denied", refused)
	}
	for _, words := range []string{`deny "` + path + `" w,`, rulesFile, "stop the instance"} {
		if !strings.Contains(refused.Message, words) {
			t.Errorf("%q does not say %q", refused.Message, words)
		}
	}
}

func TestACancelThatAppArmorWouldDenyIsRefusedAndGoesOnWithoutTheRule(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.world.DenyWrite(srcPath, rulesFile)
		call := d.call(mig.ID)
		_, _, err := d.manager().Cancel(context.Background(), call)
		must(t, err)
		saysHow(t, d.ended(call.OpID), srcPath)
		if calls := d.world.Calls(); slices.Contains(calls, "CommitActive") {
			t.Errorf("the commit was begun: %v", calls)
		}
		d.onOverlay(mig)

		d.world.DenyWrite(srcPath, "")
		_, _, err = d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

func TestACancelOfAStoppedGuestAsksNoRule(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		d.world.DenyWrite(srcPath, rulesFile)
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

func TestAMoveToWhereAppArmorDeniesTheGuestToWriteIsRefused(t *testing.T) {
	for _, method := range []string{"overlay", "mirror"} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			dst := filepath.Join(t.TempDir(), "dst.raw")
			target := api.MigrationTarget{ToPath: dst, Method: method}
			d.world.DenyWrite(dst, rulesFile)
			_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true})
			saysHow(t, api.AsError(err), dst)
			d.stayed()
		})
	}
}
