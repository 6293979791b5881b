// Stable codes in plain words. Code first, then HTTP status, then a sentence that is always true.

const REASONS = {
  NO_CANDIDATES: "Nothing in the documents you may read matches this question.",
  BELOW_THRESHOLD: "The closest passages are too far from the question to support an answer.",
  KEY_TERMS_NOT_COVERED: "Important words of the question don’t appear in any passage.",
  SOURCES_EXPIRED: "The matching documents are no longer valid.",
  SOURCES_CONFLICT: "The matching documents contradict each other.",
  BUDGET_TOO_SMALL: "The passages needed don’t fit into the space an answer may use.",
  MODEL_FOUND_NO_SUPPORT: "The passages found don’t contain the answer.",
};

const PROBLEMS = {
  token_missing: "An access token is needed.",
  token_invalid: "The access token is not valid.",
  token_expired: "The access token has expired.",
  scope_missing: "This token doesn’t allow asking questions.",
  principal_revoked: "Your access was revoked.",
  knowledge_base_not_found: "There is no such knowledge base, or you may not read it.",
  knowledge_base_required: "You may read several knowledge bases: name the one to ask.",
  body_too_large: "The question is too long.",
  rate_limited: "You are asking faster than allowed.",
  quota_exceeded: "Your quota is used up for now.",
  overloaded: "All places are taken right now.",
  shutting_down: "The service is restarting.",
  release_unresolved: "This knowledge base has no published release yet.",
  deadline_exceeded: "The answer took too long.",
  upstream_failed: "The answer model failed.",
  answer_blocked: "This answer was stopped by the rules for what may be said here.",
  moderation_unavailable: "Answers can’t be checked right now, so none are given.",
  revocation_feed_stale: "Permissions couldn’t be confirmed in time, so the answer was ended.",
  killed: "An operator ended this answer.",
  unreachable: "The gateway can’t be reached. Check the connection and try again.",
};

const STATUSES = {
  400: "The question couldn’t be accepted as it is.",
  401: "A valid access token is needed.",
  403: "You aren’t allowed to do this.",
  404: "There is no such knowledge base, or you may not read it.",
  413: "The question is too long.",
  429: "Too many requests.",
  503: "The service is not available right now.",
  504: "The answer took too long.",
};

const REVOKED = {
  user: "Your access was revoked.",
  group: "The access of one of your groups was revoked.",
  document: "A document behind this answer was withdrawn.",
  knowledge_base: "This knowledge base was withdrawn.",
  acl_changed: "The permissions of a document behind this answer have changed.",
  token_expired: "Your access token has expired.",
};

const own = (table, key) => (Object.hasOwn(table, key) ? table[key] : undefined);

export const reasonText = (code) => own(REASONS, code) ?? "The evidence isn’t sufficient.";
export const searchedText = ({ passages, knowledge_base: name, missing = [] }) => {
  if (!passages) return "";
  const looked = `${passages} ${passages === 1 ? "passage" : "passages"} of ${name} ${passages === 1 ? "was" : "were"} looked at.`;
  return missing.length ? `${looked} None of the nearest has: ${missing.join(", ")}.` : looked;
};
export const revokedText = (reason) => own(REVOKED, reason) ?? "Access to this answer was withdrawn.";

/** `problem` has code, title, detail as in problem+json or an `error` event; all may be missing. */
export function problemText(problem, status) {
  return own(PROBLEMS, problem.code) ?? own(STATUSES, status) ?? problem.title ?? "Something went wrong.";
}

/** "" when there is nothing to wait for. */
export function waitText(milliseconds) {
  if (!(milliseconds > 0)) return "";
  const seconds = Math.ceil(milliseconds / 1000);
  return seconds < 90
    ? `Try again in ${seconds} second${seconds === 1 ? "" : "s"}.`
    : `Try again in ${Math.ceil(seconds / 60)} minutes.`;
}

export const durationText = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);
