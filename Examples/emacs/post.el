;;; post.el --- Posts a notification: post.el [OBJECT [BYTES]]  -*- lexical-binding: t -*-
;; SPDX-License-Identifier: Apache-2.0
(require 'dbus)

(defconst center "org.carillon.NotificationCenter1")
(defconst path "/org/carillon/NotificationCenter1")

(let ((object (or (pop command-line-args-left) "report.txt"))
      (bytes (string-to-number (or (pop command-line-args-left) "4711"))))
  (condition-case problem
      (let ((reached (dbus-call-method
                      :session center path center "Post" "com.example.Saved" object
                      `(:array (:dict-entry "bytes" (:variant :int64 ,bytes))
                               (:dict-entry "clean" (:variant :boolean t))
                               (:dict-entry "title" (:variant :string "Annual report — 2026")))
                      ;; Kept as the value of this name and object, for observers that come later.
                      '(:array (:dict-entry "retain" (:variant :boolean t))))))
        (princ (format "reached %d\n" reached)))
    (dbus-error (message "%s" (mapconcat (lambda (part) (format "%s" part)) (cdr problem) ": "))
                (kill-emacs 1))))
