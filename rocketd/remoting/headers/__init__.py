"""Header fields of requests and answers, one declaration for both forms of the header.

`client` has the base class and the headers of clients and name servers, `admin` those of administration, `acl` those of
accounts. A field's wire name is its camel-case form.
"""
