-- SPDX-License-Identifier: Apache-2.0
-- What a volume was as a disk of an instance when it was detached from it last, so
-- that it can come back with the settings of its owner.
CREATE TABLE detached_disks (
    instance_id TEXT NOT NULL REFERENCES instances (id) ON DELETE CASCADE,
    volume_id   TEXT NOT NULL REFERENCES volumes (id) ON DELETE CASCADE,
    device      TEXT NOT NULL,
    definition  TEXT NOT NULL,
    PRIMARY KEY (instance_id, volume_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX detached_disk_volume ON detached_disks (volume_id);
