"""The grammar of SQL92 filter expressions, in lark's notation, for its LALR parser.

Counterpart: `SelectorParser.jj` (Apache), with the same sentences and structure. Keywords are words in any case, not
separate terminals, so ``NOTE`` is one word. The lexer's callback recognizes them.
"""

from typing import Final

KEYWORDS: Final = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})

GRAMMAR: Final = r"""
?selector: disjunction

?disjunction: conjunction
            | disjunction _OR conjunction                   -> logic_or

?conjunction: equality
            | conjunction _AND equality                     -> logic_and

?equality: comparison
         | equality "=" comparison                          -> equal
         | equality "<>" comparison                         -> not_equal
         | equality _IS _NULL                               -> is_null
         | equality _IS _NOT _NULL                          -> is_not_null

?comparison: unary
           | comparison ">" unary                           -> greater
           | comparison ">=" unary                          -> greater_or_equal
           | comparison "<" unary                           -> less
           | comparison "<=" unary                          -> less_or_equal
           | comparison _BETWEEN unary _AND unary           -> between
           | comparison _NOT _BETWEEN unary _AND unary      -> not_between
           | comparison _IN "(" texts ")"                   -> is_in
           | comparison _NOT _IN "(" texts ")"              -> is_not_in

?unary: primary
      | "+" unary                                           -> same
      | "-" unary                                           -> negate
      | _NOT unary                                          -> logic_not

?primary: "(" disjunction ")"
        | WORD                                              -> named
        | STRING                                            -> string
        | DECIMAL                                           -> decimal
        | FLOAT                                             -> float
        | _TRUE                                             -> true
        | _FALSE                                            -> false
        | _NULL                                             -> null

texts: STRING ("," STRING)*

%declare _NOT _AND _OR _BETWEEN _IN _TRUE _FALSE _NULL _IS

WORD: /[a-zA-Z_$][a-zA-Z0-9_$]*/
STRING: /'[^']*(?:''[^']*)*'/
FLOAT.2: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL: /0|[1-9][0-9]*[lL]?/

BLANK: /[ \t\n\r\f]+/
LINE_COMMENT.3: /--[^\n\r]*+(?:\r\n|\n|\r)/
BLOCK_COMMENT.3: /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//

%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""
