// SPDX-License-Identifier: Apache-2.0

package routes

import "github.com/volferry/volferry/internal/api"

// Routes of attachments.
var (
	ListAttachments = get[[]api.Attachment]("/v1/attachments",
		"List the attachments, or those of a volume or at an instance", registry(own), daemon(Remembers), query("volume", "instance"), paged(attachmentOrder))
	ShowAttachment = get[api.Attachment]("/v1/attachments/{attachment}",
		"Show an attachment", registry(own), daemon(Remembers))
	DeleteAttachment = remove[api.Attachment]("/v1/attachments/{attachment}",
		"Delete an attachment; with force=1 whatever its state, unless the guest has the disk, and also where the host is fenced; the registry does it at once, without an op, where no host can",
		registry(own), daemon(Answers), query("force"), begins)
)

// Routes of the migration of an attached volume, step by step.
var (
	StartMigration = post[api.MigrationTarget, api.Migration]("/v1/attachments/{attachment}/migration:start",
		"Freeze the volume of an attachment under an overlay", registry(never), daemon(Answers, waitParameter), begins)
	CopyByAttachment = post[None, api.Migration]("/v1/attachments/{attachment}/migration:copy",
		"Copy the volume of an attachment from src to dst", registry(never), daemon(Answers, waitParameter), begins)
	CompleteByAttachment = post[api.MigrationComplete, api.Migration]("/v1/attachments/{attachment}/migration:complete",
		"Put the instance of an attachment onto dst", registry(never), daemon(Answers, waitParameter), begins)
	CancelByAttachment = post[None, api.Migration]("/v1/attachments/{attachment}/migration:cancel",
		"Bring the instance of an attachment back to src", registry(never), daemon(Answers, waitParameter), begins)
)

// Routes for a host's report of its changes to an attachment.
var (
	ReserveAttachment = report[api.AttachmentReserve, api.Attachment]("/v1/attachments",
		"Reserve a volume for an instance")
	TransitionAttachment = report[api.AttachmentTransition, api.Attachment]("/v1/attachments/{attachment}/transition",
		"Move an attachment from one state to another")
	ReleaseAttachment = report[api.AttachmentRelease, api.Attachment]("/v1/attachments/{attachment}/release",
		"End an attachment whose guest was seen not to have the disk")
)
