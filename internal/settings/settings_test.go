// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/settings"
)

type config struct {
	Colour string   `toml:"colour"`
	Size   int      `toml:"size"`
	Paths  []string `toml:"paths"`
}

func defaults() *config { return &config{Colour: "grey", Size: 1} }

func flags(c *config, set *flag.FlagSet) {
	set.StringVar(&c.Colour, "colour", c.Colour, "its colour")
	set.IntVar(&c.Size, "size", c.Size, "its size")
	set.Func("paths", "its paths", func(v string) error {
		c.Paths = filepath.SplitList(v)
		return nil
	})
}

func load(t *testing.T, stderr *bytes.Buffer, args ...string) (*config, []string, error) {
	t.Helper()
	p := settings.Program{Name: "thing", Usage: "thing - a thing\n", File: filepath.Join(t.TempDir(), "absent.toml"), Stderr: stderr}
	loaded, err := settings.Load(p, args, defaults, flags)
	if err != nil {
		return nil, nil, err
	}
	return loaded.Config, loaded.Rest, nil
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "thing.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsWinOverTheFileAndTheFileOverTheDefaults(t *testing.T) {
	path := file(t, "colour = \"red\"\nsize = 2\npaths = [\"/a\"]\n")
	cfg, rest, err := load(t, new(bytes.Buffer), "--config", path, "--size", "3", "--paths", "/b:/c", "left", "over")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Colour != "red" || cfg.Size != 3 || strings.Join(cfg.Paths, " ") != "/b /c" {
		t.Errorf("got %+v, want red of the file, 3 and /b /c of the flags", cfg)
	}
	if strings.Join(rest, " ") != "left over" {
		t.Errorf("left over: %q", rest)
	}
}

func TestOnlyTheFileThatNobodyNamedMayBeAbsent(t *testing.T) {
	if cfg, _, err := load(t, new(bytes.Buffer)); err != nil || cfg.Colour != "grey" {
		t.Errorf("without a file: %+v, %v", cfg, err)
	}
	if _, _, err := load(t, new(bytes.Buffer), "--config", filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("a file that was named and is absent is no error")
	}
}

func TestLoadNamesADefaultFileThatIsAbsent(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent.toml")
	p := settings.Program{File: absent, Stderr: new(bytes.Buffer)}
	for want, args := range map[string][]string{"": {"--config", file(t, "size = 2")}, absent: nil} {
		loaded, err := settings.Load(p, args, defaults, flags)
		if err != nil {
			t.Fatal(err)
		}
		if loaded.NoFile != want {
			t.Errorf("with %q the absent file is %q, want %q", args, loaded.NoFile, want)
		}
	}
	if got := settings.Right(absent); !strings.Contains(got, "there is no file "+absent) || !strings.Contains(got, "the defaults apply") {
		t.Errorf("check-config says %q", got)
	}
}

func TestAKeyThatNobodyKnowsIsNamed(t *testing.T) {
	_, _, err := load(t, new(bytes.Buffer), "--config", file(t, "color = \"red\"\n"))
	if err == nil || !strings.Contains(err.Error(), "color") {
		t.Errorf("got %v, want an error that names the key", err)
	}
}

func TestAValueOfAnotherTypeIsRefusedInTheWordsOfTheFile(t *testing.T) {
	for text, want := range map[string]string{
		`paths = "/a"`:     `"paths"): it has to be a list, as ["a", "b"]`,
		`paths = [1]`:      `it has to be a text in quotes`,
		`colour = ["red"]`: `"colour"): it has to be a text in quotes`,
		`size = "2"`:       `"size"): it has to be a whole number`,
	} {
		_, _, err := load(t, new(bytes.Buffer), "--config", file(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestHelpIsPrintedOnce(t *testing.T) {
	var stderr bytes.Buffer
	_, _, err := load(t, &stderr, "--help")
	if !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v, want flag.ErrHelp", err)
	}
	if n := strings.Count(stderr.String(), "thing - a thing"); n != 1 || !strings.Contains(stderr.String(), "\n  --colour") {
		t.Errorf("printed %d times: %s", n, &stderr)
	}
}

func TestChecksRefuseWhatIsNone(t *testing.T) {
	for name, err := range map[string]error{
		"relative path":  settings.CheckPath("db", "a/b"),
		"path not clean": settings.CheckPath("db", "/a/../b"),
		"no port":        settings.CheckListen("metrics_listen", "127.0.0.1"),
	} {
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for name, err := range map[string]error{
		"path": settings.CheckPath("db", "/a/b"), "off": settings.CheckListen("metrics_listen", "off"),
		"address": settings.CheckListen("metrics_listen", "127.0.0.1:9643"),
	} {
		if err != nil {
			t.Errorf("%s is refused: %v", name, err)
		}
	}
	if id, err := settings.GroupID(""); id != -1 || err != nil {
		t.Errorf("no group is %d (%v), want -1", id, err)
	}
	if id, err := settings.GroupID("root"); id != 0 || err != nil {
		t.Errorf("root is %d (%v), want 0", id, err)
	}
	if _, err := settings.GroupID("no-such-group"); err == nil {
		t.Error("a group that is not there is taken")
	}
}

func TestAnUnknownFlagNamesTheOneThatWasMeant(t *testing.T) {
	for args, want := range map[string]string{
		"--confg x":  "unknown flag --confg. Did you mean --config?",
		"-colou":     "unknown flag --colou. Did you mean --colour?",
		"--nonsense": "unknown flag --nonsense (see ",
		"--config":   "--config needs a value",
	} {
		_, _, err := load(t, new(bytes.Buffer), strings.Fields(args)...)
		if err == nil || !strings.HasPrefix(err.Error(), want) || settings.ExitStatus(err) != 2 {
			t.Errorf("%s: %v, exit status %d; want %q", args, err, settings.ExitStatus(err), want)
		}
	}
}
