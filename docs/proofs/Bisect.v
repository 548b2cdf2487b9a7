(** The bisection that evaluates G on the device (10.1), in exact arithmetic: what it returns is never below G. *)

From Coq Require Import Reals List Lra Lia Psatz.
From Assay Require Import Sums Softmax Box.
Open Scope R_scope.

(** The test of the algorithm as a decision. *)
Definition upb (A E s X : R) : bool :=
  if Rlt_dec (hG A E s X) (h4 A X) then
    if Rlt_dec ((1 + WG A E s X)^2) (slope A E s X * (1 + X)^2) then true else false
  else false.

Lemma upb_spec A E s X : if upb A E s X then up A E s X else ~ up A E s X.
Proof.
  unfold upb, up. destruct (Rlt_dec _ _) as [H1|H1]; [destruct (Rlt_dec _ _) as [H2|H2]|]; tauto.
Qed.

(** [n] steps from a bracket, probing the geometric mean. *)
Fixpoint bisect (A E s : R) (n : nat) (lo hi : R) : R * R :=
  match n with
  | O => (lo, hi)
  | S n => let x := sqrt (lo * hi) in if upb A E s x then bisect A E s n x hi else bisect A E s n lo x
  end.

Definition bracket (A E s : R) (n : nat) (lo0 : R) : R * R :=
  if upb A E s lo0 then (if upb A E s 1 then (1, 1) else bisect A E s n lo0 1) else (0, lo0).

(** The value returned. *)
Definition meter (A E s : R) (n : nat) (lo0 : R) : R :=
  let '(lo, hi) := bracket A E s n lo0 in (WG A E s hi - lo) / ((1 + lo) * (1 + WG A E s hi)).

Lemma sqrt_between lo hi : 0 < lo -> lo <= hi -> lo <= sqrt (lo * hi) <= hi.
Proof.
  intros H0 H. split.
  - rewrite <- (sqrt_square lo) at 1 by lra. apply sqrt_le_1_alt. nra.
  - rewrite <- (sqrt_square hi) at 2 by lra. apply sqrt_le_1_alt. nra.
Qed.

Lemma bisect_bracket A E s n lo hi :
  0 < lo -> lo <= hi -> hi <= 1 -> up A E s lo -> (hi = 1 \/ ~ up A E s hi) ->
  let '(lo', hi') := bisect A E s n lo hi in
  0 < lo' /\ lo' <= hi' /\ hi' <= 1 /\ up A E s lo' /\ (hi' = 1 \/ ~ up A E s hi').
Proof.
  revert lo hi. induction n as [|n IH]; intros lo hi H0 H1 H2 Hl Hh; simpl; [tauto|].
  pose proof (sqrt_between lo hi H0 H1) as Hx. pose proof (upb_spec A E s (sqrt (lo * hi))) as U.
  destruct (upb A E s (sqrt (lo * hi))); apply IH; try lra; try assumption. now right.
Qed.

(** The bracket closes geometrically. *)
Theorem bisect_width A E s n lo hi :
  0 < lo -> lo <= hi ->
  let '(lo', hi') := bisect A E s n lo hi in ln hi' - ln lo' = (ln hi - ln lo) / 2^n.
Proof.
  revert lo hi. induction n as [|n IH]; intros lo hi H0 H1; simpl; [field|].
  pose proof (sqrt_between lo hi H0 H1) as Hx.
  assert (L : ln (sqrt (lo * hi)) = (ln lo + ln hi) / 2).
  { rewrite <- ln_mult by lra. assert (P : 0 < sqrt (lo * hi)) by lra.
    rewrite <- (sqrt_sqrt (lo * hi)) at 2 by nra. rewrite ln_mult by assumption. field. }
  assert (P2 : 0 < 2^n) by (apply pow_lt; lra).
  destruct (upb A E s (sqrt (lo * hi))).
  - specialize (IH (sqrt (lo * hi)) hi ltac:(lra) ltac:(lra)). destruct (bisect _ _ _ n _ _) as [lo' hi'].
    rewrite IH, L. field. lra.
  - specialize (IH lo (sqrt (lo * hi)) ltac:(lra) ltac:(lra)). destruct (bisect _ _ _ n _ _) as [lo' hi'].
    rewrite IH, L. field. lra.
Qed.

(** 10.1: an upper bound after any number of steps, from any start. *)
Theorem bisection_upper_bound A C s n lo0 :
  1 <= A -> A <= exp C -> 0 <= s -> 0 < lo0 <= 1 -> G A C s <= meter A (exp C) s n lo0.
Proof.
  intros HA HE Hs Hl. set (E := exp C) in *.
  assert (K : let '(lo, hi) := bracket A E s n lo0 in
    0 <= lo /\ lo <= hi /\ 0 < hi /\ hi <= 1 /\ (lo = 0 \/ up A E s lo) /\ (hi = 1 \/ ~ up A E s hi)).
  { unfold bracket. pose proof (upb_spec A E s lo0) as U0. pose proof (upb_spec A E s 1) as U1.
    destruct (upb A E s lo0).
    - destruct (upb A E s 1); [intuition lra|].
      pose proof (bisect_bracket A E s n lo0 1 ltac:(lra) ltac:(lra) ltac:(lra) U0 (or_introl eq_refl)) as B.
      destruct (bisect A E s n lo0 1) as [lo hi]. intuition lra.
    - intuition lra. }
  unfold meter. destruct (bracket A E s n lo0) as [lo hi]. destruct K as (K0 & K1 & K2 & K3 & K4 & K5).
  apply G_le. intros X HX. fold E.
  replace ((WG A E s hi - lo) / ((1 + lo) * (1 + WG A E s hi))) with (gain lo (WG A E s hi)).
  - now apply bracket_bound.
  - unfold gain. pose proof (WG_nonneg A E s HA HE Hs hi ltac:(lra)). field. lra.
Qed.

(** With inputs rounded up the result still bounds G of the true inputs. *)
Corollary bisection_of_rounded_inputs A A' C C' s s' n lo0 :
  1 <= A -> A <= exp C -> A <= A' -> A' <= exp C' -> C <= C' -> 0 <= s -> s <= s' -> 0 < lo0 <= 1 ->
  G A C s <= meter A' (exp C') s' n lo0.
Proof.
  intros. apply Rle_trans with (G A' C' s'); [now apply G_mono|]. apply bisection_upper_bound; lra.
Qed.

(** F and G rise, then fall, in the odds X (3.6 d). *)
Theorem F_unimodal A C x y z :
  1 <= A -> A <= exp C -> 0 < x -> x <= y -> y <= z -> z <= 1 ->
  Rmin (gain x (WF A (exp C) x)) (gain z (WF A (exp C) z)) <= gain y (WF A (exp C) y).
Proof.
  intros HA HE Hx Hxy Hyz Hz. unfold WF.
  rewrite !(hF_hG A (exp C) (exp C)) by lra. apply gainG_unimodal; lra.
Qed.

(** The same with its peak: no valley means that the value rises up to some point and falls beyond it. *)
Lemma no_valley_peak (f : R -> R) :
  (forall x y z, 0 < x -> x <= y -> y <= z -> z <= 1 -> Rmin (f x) (f z) <= f y) ->
  exists m, 0 <= m <= 1 /\
    (forall x y, 0 < x -> x <= y -> y < m -> f x <= f y) /\
    (forall x y, m < x -> x <= y -> y <= 1 -> f y <= f x).
Proof.
  intros H.
  set (rising := fun x => x = 0 \/ (0 < x <= 1 /\ forall u v, 0 < u -> u <= v -> v <= x -> f u <= f v)).
  destruct (completeness rising) as [m [Hu Hl]].
  - exists 1. intros x [->|[Hx _]]; lra.
  - exists 0. now left.
  - assert (Hm : 0 <= m <= 1).
    { split; [apply Hu; now left|]. apply Hl. intros x [->|[Hx _]]; lra. }
    exists m. split; [assumption|]. split.
    + intros x y Hx Hxy Hy. destruct (Rle_lt_dec (f x) (f y)) as [|L]; [assumption|exfalso].
      assert (m <= y); [|lra]. apply Hl. intros w [->|[Hw R]]; [lra|].
      destruct (Rle_lt_dec w y) as [|Lw]; [assumption|exfalso].
      specialize (R x y Hx Hxy ltac:(lra)). lra.
    + intros x y Hx Hxy Hy. destruct (Rle_lt_dec (f y) (f x)) as [|L]; [assumption|exfalso].
      assert (x <= m); [|lra]. apply Hu. right. split; [lra|]. intros u v Hu0 Huv Hv.
      destruct (Rle_lt_dec (f u) (f v)) as [|L']; [assumption|exfalso].
      pose proof (H u v y Hu0 Huv ltac:(lra) Hy) as K1. pose proof (H v x y ltac:(lra) Hv Hxy Hy) as K2.
      revert K1 K2. unfold Rmin. destruct (Rle_dec (f u) (f y)), (Rle_dec (f v) (f y)); lra.
Qed.

Theorem G_rises_then_falls A C s :
  1 <= A -> A <= exp C -> 0 <= s ->
  exists m, 0 <= m <= 1 /\
    (forall x y, 0 < x -> x <= y -> y < m -> gain x (WG A (exp C) s x) <= gain y (WG A (exp C) s y)) /\
    (forall x y, m < x -> x <= y -> y <= 1 -> gain y (WG A (exp C) s y) <= gain x (WG A (exp C) s x)).
Proof.
  intros HA HE Hs. apply (no_valley_peak (fun X => gain X (WG A (exp C) s X))).
  intros x y z. now apply gainG_unimodal.
Qed.
