// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/connector"
)

const extent = 4 << 20

// fakeLVM is a volume group vg with a thin pool, and the commands that the connector needs. A
// command that sees two groups of one name refuses it.
type fakeLVM struct {
	volumes []logical
	// disks has the name and UUID of each disk's group.
	disks map[string][2]string
	// fails, if set, has the errors of commands, by name.
	fails map[string]error
	ran   []string
}

func newFakeLVM() *fakeLVM {
	return &fakeLVM{volumes: []logical{
		{Name: "pool", UUID: "pool-uuid", Size: strconv.Itoa(100 * extent), Layout: "thin,pool", DataPercent: "25.00", Zero: "1"},
		{Name: "root", UUID: "root-uuid", Size: strconv.Itoa(10 * extent), Layout: "linear"},
		{Name: "elsewhere", UUID: "else-uuid", Size: strconv.Itoa(10 * extent), Layout: "thin,sparse", PoolLV: "another"},
	}, fails: map[string]error{}, disks: map[string][2]string{"/dev/sda": {"vg", "vg-uuid"}, "/dev/sdb": {"vg", "vg-uuid"}, "/dev/sdc": {"other", "other-uuid"}}}
}

// pvs reports the disks.
func (f *fakeLVM) pvs() ([]byte, error) {
	pvs := []map[string]string{{"pv_name": "[unknown]", "vg_name": "vg", "vg_uuid": "vg-uuid"}, {"pv_name": "/dev/free", "vg_name": "", "vg_uuid": ""}}
	for _, disk := range slices.Sorted(maps.Keys(f.disks)) {
		pvs = append(pvs, map[string]string{"pv_name": disk, "vg_name": f.disks[disk][0], "vg_uuid": f.disks[disk][1]})
	}
	return json.Marshal(map[string]any{"report": []any{map[string]any{"pv": pvs}}})
}

// uuidOf returns the group of this name that a command sees.
func (f *fakeLVM) uuidOf(name, devices string) (string, error) {
	seen := map[string]bool{}
	for disk, of := range f.disks {
		if of[0] == name && (devices == "" || slices.Contains(strings.Split(devices, ","), disk)) {
			seen[of[1]] = true
		}
	}
	if len(seen) != 1 {
		return "", fmt.Errorf("exit status 5: there are %d groups %q", len(seen), name)
	}
	return slices.Collect(maps.Keys(seen))[0], nil
}

// option returns the value of an option of a command.
func option(args []string, name string) string {
	i := slices.Index(args, name)
	if i < 0 {
		return ""
	}
	return args[i+1]
}

func (f *fakeLVM) run(_ context.Context, args ...string) ([]byte, error) {
	f.ran = append(f.ran, strings.Join(args, " "))
	if err := f.fails[args[0]]; err != nil {
		return nil, err
	}
	if args[0] == "pvs" {
		return f.pvs()
	}
	target := args[len(args)-1]
	name, _, _ := strings.Cut(target, "/")
	uuid, err := f.uuidOf(name, option(args, "--devices"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], err)
	}
	switch args[0] {
	case "lvs":
		all := slices.Clone(f.volumes)
		for i := range all {
			all[i].GroupUUID, all[i].ExtentSize = uuid, strconv.Itoa(extent)
		}
		return json.Marshal(map[string]any{"report": []any{map[string]any{"lv": all}}})
	case "lvcreate":
		name := option(args, "--name")
		f.volumes = append(f.volumes, logical{
			Name: name, UUID: name + "-uuid", Size: strings.TrimSuffix(option(args, "--virtualsize"), "b"), Layout: "thin,sparse",
			PoolLV: option(args, "--thinpool"), Tags: "a.tag," + option(args, "--addtag"),
		})
	case "lvextend":
		i := slices.IndexFunc(f.volumes, func(v logical) bool { return "vg/"+v.Name == target })
		f.volumes[i].Size = strings.TrimSuffix(option(args, "--size"), "b")
	case "lvremove":
		f.volumes = slices.DeleteFunc(f.volumes, func(v logical) bool { return "lv_uuid="+v.UUID == option(args, "--select") })
	}
	return nil, nil
}

func ask(t *testing.T, f *fakeLVM, in connector.Request) (connector.Answer, error) {
	t.Helper()
	if in.Options == nil {
		in.Options = map[string]string{"vg": "vg", "vg_uuid": "vg-uuid", "thin_pool": "pool"}
	}
	return lvm{run: f.run}.handle(t.Context(), in)
}

func TestAThinPoolSaysWhatItHas(t *testing.T) {
	out, err := ask(t, newFakeLVM(), connector.Request{Verb: connector.VerbInspect})
	if err != nil || out.Pool.Directory != "/dev/vg" || out.Pool.CapacityBytes != 100*extent || out.Pool.FreeBytes != 75*extent || out.Pool.GranularityBytes != extent {
		t.Errorf("it says %+v, %v", out.Pool, err)
	}
}

// A guest writes the name of the pool's group on its own disk.
func TestAnotherVolumeGroupOfTheNameIsNotUsed(t *testing.T) {
	guest := [2]string{"vg", "guest-uuid"}
	f := newFakeLVM()
	f.disks["/dev/lun"] = guest
	out, err := ask(t, f, connector.Request{Verb: connector.VerbInspect})
	if err != nil || !strings.Contains(out.Pool.Warning, "guest-uuid on /dev/lun") {
		t.Errorf("beside it: %+v, %v", out.Pool, err)
	}
	made, err := ask(t, f, connector.Request{Verb: connector.VerbCreate, OpID: "op", Volume: "db", SizeBytes: extent})
	if err != nil || made.Volume.Identity != "LVM-vguuiddbuuid" {
		t.Errorf("a volume beside it: %+v, %v", made.Volume, err)
	}
	for _, ran := range f.ran {
		if !strings.HasPrefix(ran, "pvs ") && !strings.Contains(ran, " --devices /dev/sda,/dev/sdb ") {
			t.Errorf("%s sees other disks", ran)
		}
	}
	// The same while the pool's own disks are missing.
	f.disks = map[string][2]string{"/dev/lun": guest}
	f.ran = nil
	for _, in := range []connector.Request{
		{Verb: connector.VerbInspect},
		{Verb: connector.VerbInspect, Volume: "db"},
		{Verb: connector.VerbCreate, OpID: "op", Volume: "new", SizeBytes: extent},
		{Verb: connector.VerbDelete, OpID: "op", Volume: "db", Identity: "LVM-vguuiddbuuid"},
	} {
		if _, err := ask(t, f, in); connector.CodeOf(err) != connector.CodeUnavailable || !strings.Contains(err.Error(), "guest-uuid on /dev/lun") {
			t.Errorf("alone, %s %s: %v", in.Verb, in.Volume, err)
		}
	}
	if i := slices.IndexFunc(f.ran, func(c string) bool { return !strings.HasPrefix(c, "pvs ") }); i >= 0 {
		t.Errorf("it ran %s", f.ran[i])
	}
}

func TestWithoutTheUUIDOfTheGroupNothingIsUsedAndItIsSaid(t *testing.T) {
	f := newFakeLVM()
	f.disks["/dev/lun"] = [2]string{"vg", "guest-uuid"}
	_, err := ask(t, f, connector.Request{Verb: connector.VerbInspect, Options: map[string]string{"vg": "vg", "thin_pool": "pool"}})
	if connector.CodeOf(err) != connector.CodeInvalid || !strings.Contains(err.Error(), "vg-uuid on /dev/sda, /dev/sdb") || !strings.Contains(err.Error(), "guest-uuid on /dev/lun") {
		t.Errorf("got %v", err)
	}
}

// TestAPoolThatIsNotThereIsNotEmpty: its disks may be missing.
func TestAPoolThatIsNotThereIsNotEmpty(t *testing.T) {
	for what, c := range map[string]struct {
		change func(f *fakeLVM)
		code   string
	}{
		"no disks":        {func(f *fakeLVM) { f.disks = nil }, connector.CodeUnavailable},
		"no labels":       {func(f *fakeLVM) { f.fails["pvs"] = errors.New("pvs: exit status 5") }, connector.CodeUnavailable},
		"no volume group": {func(f *fakeLVM) { f.fails["lvs"] = errors.New("lvs: exit status 5: not found") }, connector.CodeUnavailable},
		"no pool":         {func(f *fakeLVM) { f.volumes = f.volumes[1:] }, connector.CodeUnavailable},
		"no thin pool":    {func(f *fakeLVM) { f.volumes[0].Layout = "linear" }, connector.CodeInvalid},
		"does not zero":   {func(f *fakeLVM) { f.volumes[0].Zero = "0" }, connector.CodeInvalid},
	} {
		f := newFakeLVM()
		c.change(f)
		for _, in := range []connector.Request{
			{Verb: connector.VerbInspect},
			{Verb: connector.VerbInspect, Volume: "db"},
			{Verb: connector.VerbDelete, OpID: "op", Volume: "db", Identity: "x"},
		} {
			if _, err := ask(t, f, in); connector.CodeOf(err) != c.code {
				t.Errorf("%s: %s %s: %v, want %s", what, in.Verb, in.Volume, err, c.code)
			}
		}
	}
}

func TestOnlyVolumesOfTheThinPoolAreItsOwn(t *testing.T) {
	for _, name := range []string{"pool", "root", "elsewhere"} {
		f := newFakeLVM()
		if _, err := ask(t, f, connector.Request{Verb: connector.VerbInspect, Volume: name}); connector.CodeOf(err) != connector.CodeNotFound {
			t.Errorf("%s is a volume of the pool: %v", name, err)
		}
		if _, err := ask(t, f, connector.Request{Verb: connector.VerbCreate, OpID: "op", Volume: name, SizeBytes: extent}); connector.CodeOf(err) != connector.CodeExists {
			t.Errorf("%s is made once more: %v", name, err)
		}
		if _, err := ask(t, f, connector.Request{Verb: connector.VerbDelete, OpID: "op", Volume: name, Identity: "LVM-vguuid" + name + "uuid"}); err != nil || len(f.volumes) != 3 {
			t.Errorf("%s is deleted, or the delete of what the pool has not is an error: %v", name, err)
		}
	}
}

func TestAVolumeKnowsTheOpThatHasMadeIt(t *testing.T) {
	f := newFakeLVM()
	in := connector.Request{Verb: connector.VerbCreate, OpID: "op-1", Volume: "db", SizeBytes: 2 * extent}
	for range 2 {
		out, err := ask(t, f, in)
		if want := (connector.Volume{Name: "db", Path: "/dev/vg/db", SizeBytes: 2 * extent, Identity: "LVM-vguuiddbuuid", OpID: "op-1"}); err != nil || *out.Volume != want {
			t.Fatalf("it says %+v, %v, want %+v", out.Volume, err, want)
		}
	}
	if made := slices.DeleteFunc(f.ran, func(c string) bool { return !strings.HasPrefix(c, "lvcreate") }); len(made) != 1 {
		t.Errorf("it ran %v", made)
	}
	for what, change := range map[string]func(in *connector.Request){
		"another op":   func(in *connector.Request) { in.OpID = "op-2" },
		"another size": func(in *connector.Request) { in.SizeBytes = extent },
	} {
		other := in
		change(&other)
		if _, err := ask(t, f, other); connector.CodeOf(err) != connector.CodeExists {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestWhatLVMSaysOfARefusalHasACode(t *testing.T) {
	for text, code := range map[string]string{
		"lvcreate: exit status 5: Free space in pool vg/pool is above threshold, new volume can't be created.": connector.CodeNoSpace,
		"lvcreate: exit status 5: insufficient free space":                                                     connector.CodeNoSpace,
		"lvremove: exit status 5: Logical volume vg/db in use.":                                                connector.CodeInUse,
		`lvcreate: exit status 5: Logical Volume "db" already exists in volume group "vg"`:                     connector.CodeExists,
		`lvcreate: exit status 3: Names including "_tmeta" are reserved.`:                                      connector.CodeInvalid,
		"lvcreate: exit status 5: device-mapper: something":                                                    connector.CodeFailed,
	} {
		f := newFakeLVM()
		f.fails["lvcreate"] = errors.New(text)
		if _, err := ask(t, f, connector.Request{Verb: connector.VerbCreate, OpID: "op", Volume: "db", SizeBytes: extent}); connector.CodeOf(err) != code {
			t.Errorf("%s: %v, want %s", text, err, code)
		}
	}
}

func TestOptionsThatAreNoNamesAreRefused(t *testing.T) {
	for what, options := range map[string]map[string]string{
		"nothing":       {"vg": ""},
		"no pool":       {"vg": "vg"},
		"an option":     {"vg": "--config=x", "thin_pool": "pool"},
		"a path":        {"vg": "../vg", "thin_pool": "pool"},
		"a dot":         {"vg": "..", "thin_pool": "pool"},
		"a wrong key":   {"vg": "vg", "thin_pool": "pool", "thinpool": "x"},
		"a group alone": {"thin_pool": "pool"},
	} {
		f := newFakeLVM()
		if _, err := ask(t, f, connector.Request{Verb: connector.VerbInspect, Options: options}); connector.CodeOf(err) != connector.CodeInvalid || len(f.ran) > 0 {
			t.Errorf("%s: %v, ran %v", what, err, f.ran)
		}
	}
}

func TestAVolumeThatIsOpenOrAnotherIsNotDeleted(t *testing.T) {
	f := newFakeLVM()
	out, err := ask(t, f, connector.Request{Verb: connector.VerbCreate, OpID: "op-1", Volume: "db", SizeBytes: extent})
	if err != nil {
		t.Fatal(err)
	}
	last := &f.volumes[len(f.volumes)-1]
	last.DeviceOpen = "1"
	in := connector.Request{Verb: connector.VerbDelete, OpID: "op-2", Volume: "db", Identity: out.Volume.Identity}
	if _, err := ask(t, f, in); connector.CodeOf(err) != connector.CodeInUse {
		t.Errorf("what is open: %v", err)
	}
	last.DeviceOpen = "0"
	in.Identity = "another"
	if _, err := ask(t, f, in); connector.CodeOf(err) != connector.CodeChanged {
		t.Errorf("another one: %v", err)
	}
	in.Identity = out.Volume.Identity
	for range 2 {
		if _, err := ask(t, f, in); err != nil || len(f.volumes) != 3 {
			t.Errorf("there are %d volumes, %v", len(f.volumes), err)
		}
	}
}

func TestAVolumeGetsLargerAndNotSmaller(t *testing.T) {
	f := newFakeLVM()
	out, err := ask(t, f, connector.Request{Verb: connector.VerbCreate, OpID: "op-1", Volume: "db", SizeBytes: 2 * extent})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		bytes    int64
		identity string
		code     string
	}{
		{3 * extent, out.Volume.Identity, ""},
		{3 * extent, out.Volume.Identity, ""},
		{4 * extent, "another", connector.CodeChanged},
		{2 * extent, out.Volume.Identity, connector.CodeInvalid},
		{4*extent + 512, out.Volume.Identity, connector.CodeInvalid},
	} {
		now, err := ask(t, f, connector.Request{Verb: connector.VerbExtend, OpID: "op-2", Volume: "db", SizeBytes: c.bytes, Identity: c.identity})
		if connector.CodeOf(err) != c.code || err == nil && now.Volume.SizeBytes != c.bytes {
			t.Errorf("to %d: %+v, %v, want %q", c.bytes, now.Volume, err, c.code)
		}
	}
}
