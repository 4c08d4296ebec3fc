// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/settings"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

var backupCommand = command{
	name: "backup", args: "FILE", min: 1, max: 1,
	place:   "db",
	summary: "copy the database to a new file; the registry may be running",
	help: `The copy is of one moment, is on stable storage and was checked when this command
ends without an error. A file that is there is not replaced. The TLS directory is
not in it.
`,
	run: func(ctx context.Context, in *invocation) error {
		if err := in.refuseDirectoryOfOthers(in.args[0]); err != nil {
			return err
		}
		if err := sqlitedb.Backup(ctx, in.cfg.DB, in.args[0]); err != nil {
			return err
		}
		in.printf("copied %s to %s, checked and on stable storage\n", in.cfg.DB, in.args[0])
		return nil
	},
}

var acceptRestoreCommand = command{
	name: "accept-restore", args: "--evidence TEXT [--without-proof]",
	place:   "db",
	summary: "make a registry that was restored from a backup take changes again; stop it first",
	help: `A registry that is older than what its hosts were told takes no changes. Compare it
with the hosts before ("volferryctl instance list" and "attachment list" on each),
and say in the evidence how; it goes into the audit trail. Every host gets a new
epoch: it stops guests with disks that the registry has not attached to them. So it is
refused while no host has shown that the database is older than what it was told;
--without-proof is for a backup that you know of and no host has reported to yet.
`,
	flags: func(set *flag.FlagSet, o *options) {
		set.StringVar(&o.evidence, "evidence", "", "how it is known that the registry and the hosts agree (`text`)")
		set.BoolVar(&o.withoutProof, "without-proof", false, "accept it although no host has shown that the database is from a backup")
	},
	run: acceptRestore,
}

func acceptRestore(ctx context.Context, in *invocation) (err error) {
	if in.evidence == "" {
		return settings.Usagef("say with --evidence how it is known that the registry and the hosts agree")
	}
	if err := in.refuseDirectoryOfOthers(""); err != nil {
		return err
	}
	// workflow.Open would create it.
	if _, err := os.Stat(in.cfg.DB); err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	db, err := workflow.Open(ctx, in.cfg.DB, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	who := httpjson.Peer{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), PID: int32(os.Getpid())}
	mark, err := db.Marks.AcceptRestore(ctx, store.Call{Who: who.String()}, store.RestoreAcceptance{Evidence: in.evidence, WithoutProof: in.withoutProof})
	if err != nil {
		return err
	}
	in.printf("accepted: timeline %d of registry %s begins after event %d\nStart the registry.\n", mark.Timeline, mark.RegistryID, mark.Seq)
	return nil
}
