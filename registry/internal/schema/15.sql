-- SPDX-License-Identifier: Apache-2.0
-- Whether the host of an instance has last reported that the disks of its domain are not where
-- its volumes are.
ALTER TABLE instances ADD COLUMN differs INTEGER NOT NULL DEFAULT 0 CHECK (differs IN (0, 1));
