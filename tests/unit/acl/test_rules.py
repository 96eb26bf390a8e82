"""Access rules: parsing of permissions, the order of the checks, and the deciding entry."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.acl.accounts import ADMIN_CODES, Account, AccountConfig
from rocketd.acl.addresses import address_rule
from rocketd.acl.credentials import Credentials
from rocketd.acl.errors import (
    AclError,
    NoAccessKeyError,
    NoPermissionError,
    NotAdminError,
    SignatureError,
    UnknownAccessKeyError,
)
from rocketd.acl.permissions import (
    Permission,
    check_entries,
    describe,
    grants,
    parse_permission,
    parse_resources,
    retry_topic,
    shown,
)
from rocketd.acl.rules import AccessRules
from rocketd.acl.signature import Secret

PUB, SUB, DENY, ANY = Permission.PUB, Permission.SUB, Permission.DENY, Permission.ANY
KEY, SECRET = "userKey1", "userSecret1"


class PermissionTests(SynchronousTestCase):
    def test_permission_texts_are_parsed(self):
        for text, permission in (
            ("PUB", PUB),
            (" SUB ", SUB),
            ("PUB|SUB", PUB | SUB),
            ("SUB|PUB", PUB | SUB),
            ("DENY", DENY),
            ("pub", DENY),
            ("PUB | SUB", DENY),
            ("", DENY),
            (None, DENY),
        ):
            self.assertEqual(parse_permission(text), permission, text)

    def test_permissions_grant_needed_rights(self):
        for owned, needed, enough in (
            (PUB, PUB, True),
            (SUB, PUB, False),
            (PUB | SUB, SUB, True),
            (DENY, SUB, False),
            (PUB | DENY, PUB, False),
            (SUB, ANY, True),
            (DENY, ANY, False),
        ):
            self.assertIs(grants(owned, needed), enough, f"{owned} {needed}")

    def test_resource_permissions_are_parsed(self):
        self.assertEqual(parse_resources(["T = PUB|SUB", "U=x"], topics=True), {"T": PUB | SUB, "U": DENY})
        self.assertEqual(parse_resources(["G=SUB"], topics=False), {"%RETRY%G": SUB})
        error = self.assertRaises(AclError, parse_resources, ["T"], topics=True)
        self.assertEqual(str(error), "Parse resource permission failed for topic:T")
        self.assertRaises(AclError, parse_resources, ["a=b=c"], topics=False)

    def test_check_entries_refuses_malformed_entries(self):
        check_entries(None)
        check_entries(["T=DENY", "T=PUB", "T=SUB|PUB"])
        for entry, text in (
            ("T", "Parse Resource format error for T.\nThe expected resource format"),
            ("T=pub", "Parse resource permission error for T=pub.\nThe expected permissions are"),
        ):
            self.assertIn(text, str(self.assertRaises(AclError, check_entries, [entry])))

    def test_resource_names_in_texts(self):
        self.assertEqual(shown(retry_topic("G")), "group:G")
        self.assertEqual(shown("T"), "topic:T")
        self.assertEqual(describe(PUB | SUB), "PUB|SUB")


class AccountTests(SynchronousTestCase):
    def test_short_keys_are_refused(self):
        for access_key, secret_key in ((None, SECRET), (KEY, None), ("123456", SECRET), (KEY, "123456")):
            error = self.assertRaises(AclError, Account.of, AccountConfig(access_key, secret_key))
            self.assertNotIn(str(secret_key), str(error))

    def test_secrets_are_not_shown(self):
        config = AccountConfig(KEY, SECRET)
        self.assertNotIn(SECRET, repr(config) + repr(Account.of(config)))

    def test_admin_codes_equal_apaches(self):
        self.assertEqual(ADMIN_CODES, {17, 25, 200, 207, 215})


class RulesTests(SynchronousTestCase):
    def check(self, rules, needed=None, *, code=10, host="10.0.0.9", key=KEY, secret=SECRET):
        fields = Credentials(key, secret).sign({"topic": "T"}, b"body")
        rules.check(code, host, fields, b"body", lambda: needed or {})

    def rules(self, white=(), strict=False, **account):
        config = AccountConfig(KEY, SECRET, **account)
        return AccessRules([Account.of(config)], [address_rule(text) for text in white], strict=strict)

    def test_global_white_address_needs_no_signature(self):
        rules = self.rules(white=["10.0.0.*"])
        for _ in range(2):
            rules.check(17, "10.0.0.9", None, None, lambda: {"T": PUB})
        with self.assertRaises(NoAccessKeyError):
            rules.check(17, "10.0.1.9", None, None, dict)

    def test_query_by_key_is_checked_as_java_signs_it(self):
        rules = self.rules(topic_perms=["T=SUB"])
        fields = {"topic": "T", "key": "k", "_UNIQUE_KEY_QUERY": "true", "maxNum": "32", "AccessKey": KEY}
        # In the order of the names, where the underscore is behind A and before k.
        fields["Signature"] = Secret(SECRET.encode()).sign(f"{KEY}truek32T".encode()).decode()
        rules.check(12, "10.0.0.9", fields, None, lambda: {"T": SUB})
        # Brokers leave out the same fields, so the ordinary check accepts this signature too.
        rules.check(12, "10.0.0.9", Credentials(KEY, SECRET).sign(fields, None), None, lambda: {"T": SUB})
        for code, changed in ((12, {"_UNIQUE_KEY_QUERY": "false"}), (12, {"key": "l"}), (11, {})):
            with self.assertRaises(SignatureError):
                rules.check(code, "10.0.0.9", fields | changed, None, lambda: {"T": SUB})
        with self.assertRaises(NoPermissionError):
            rules.check(12, "10.0.0.9", fields, None, lambda: {"U": SUB})

    def test_ipv6_in_brackets(self):
        self.rules(white=["fe80::1"]).check(10, "[fe80::1%eth0]", None, None, dict)

    def test_request_without_access_key_is_refused(self):
        for fields in (None, {}, {"topic": "T"}):
            with self.assertRaises(NoAccessKeyError) as caught:
                self.rules().check(10, "10.0.0.9", fields, None, dict)
            self.assertEqual(str(caught.exception), "No accessKey is configured")

    def test_unknown_access_key_is_refused(self):
        with self.assertRaises(UnknownAccessKeyError) as caught:
            self.check(self.rules(), key="nobodyKey")
        self.assertEqual(str(caught.exception), "No acl config for nobodyKey")

    def test_white_address_of_account_needs_no_secret(self):
        rules = self.rules(white_remote_address="10.0.0.9")
        self.check(rules, {"T": PUB}, code=17, secret="wrong-secret")
        with self.assertRaises(SignatureError):
            self.check(rules, {"T": PUB}, host="10.0.0.8", secret="wrong-secret")

    def test_wrong_secret_is_refused(self):
        with self.assertRaises(SignatureError) as caught:
            self.check(self.rules(default_topic_perm="PUB"), {"T": PUB}, secret="wrong-secret")
        self.assertEqual(str(caught.exception), "Check signature failed for accessKey=userKey1")

    def test_changed_body_is_refused(self):
        fields = Credentials(KEY, SECRET).sign({"topic": "T"}, b"body")
        with self.assertRaises(SignatureError):
            self.rules().check(10, "10.0.0.9", fields, b"bodY", dict)

    def test_resources_are_read_after_signature_check_only(self):
        with self.assertRaises(SignatureError):
            self.rules().check(10, "10.0.0.9", {"AccessKey": KEY}, None, self.fail)

    def test_default_permissions_apply_without_entries(self):
        rules = self.rules(default_topic_perm="PUB", default_group_perm="SUB")
        self.check(rules, {"T": PUB, "%RETRY%G": SUB})
        for needed, text in (
            ({"T": SUB}, "No default permission for topic:T"),
            ({"%RETRY%G": PUB}, "No default permission for group:G"),
        ):
            with self.assertRaises(NoPermissionError) as caught:
                self.check(rules, needed)
            self.assertEqual(str(caught.exception), text)

    def test_absent_defaults_deny(self):
        for needed in ({"T": PUB}, {"%RETRY%G": SUB}):
            with self.assertRaises(NoPermissionError):
                self.check(self.rules(), needed)

    def test_entries_outweigh_defaults(self):
        rules = self.rules(
            default_topic_perm="PUB|SUB",
            topic_perms=["T=DENY", "U=SUB"],
            group_perms=["G=SUB"],
            default_group_perm="DENY",
        )
        self.check(rules, {"V": PUB, "U": SUB, "%RETRY%G": SUB})
        for needed in ({"T": PUB}, {"U": PUB}, {"V": PUB, "%RETRY%H": SUB}):
            with self.assertRaises(NoPermissionError):
                self.check(rules, needed)

    def test_no_permission_error_has_resource_key_and_permissions(self):
        with self.assertRaises(NoPermissionError) as caught:
            self.check(self.rules(default_topic_perm="SUB"), {"T": PUB})
        error = caught.exception
        self.assertEqual((error.resource, error.access_key, error.needed, error.owned), ("topic:T", KEY, "PUB", "SUB"))

    def test_trace_topic_needs_no_permission(self):
        self.check(self.rules(), {"RMQ_SYS_TRACE_TOPIC": PUB})
        with self.assertRaises(NoPermissionError):
            self.check(self.rules(), {"RMQ_SYS_TRACE_TOPIC": SUB})

    def test_admin_codes(self):
        for code in ADMIN_CODES:
            with self.assertRaises(NotAdminError) as caught:
                self.check(self.rules(), code=code)
            self.assertEqual(
                str(caught.exception), f"Need admin permission for request code={code}, but accessKey=userKey1 is not"
            )
            self.check(self.rules(admin=True), code=code)

    def test_admin_without_entries_may_use_every_resource(self):
        self.check(self.rules(admin=True), {"T": PUB})
        with self.assertRaises(NoPermissionError):
            self.check(self.rules(admin=True, topic_perms=["U=PUB"]), {"T": PUB})

    def test_admin_requests_need_admin_only_if_strict(self):
        for code in (33, 50, 51, 52, 53, 54, 222, 306, 309, 314, 316, 323, 329):
            self.check(self.rules(), code=code)
            with self.assertRaises(NotAdminError):
                self.check(self.rules(strict=True), code=code)
            self.check(self.rules(strict=True, admin=True), code=code)

    def test_slave_requests_need_no_admin(self):
        for code in (21, 43, 45, 201):
            self.check(self.rules(strict=True), code=code)
