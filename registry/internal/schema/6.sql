-- SPDX-License-Identifier: Apache-2.0
-- The definition of a disk when its volume was last detached from an instance, so that it can be
-- attached again with the same settings.
CREATE TABLE detached_disks (
    instance_id TEXT NOT NULL REFERENCES instances (id) ON DELETE CASCADE,
    volume_id   TEXT NOT NULL REFERENCES volumes (id) ON DELETE CASCADE,
    device      TEXT NOT NULL,
    definition  TEXT NOT NULL,
    PRIMARY KEY (instance_id, volume_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX detached_disk_volume ON detached_disks (volume_id);
